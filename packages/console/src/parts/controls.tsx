/** Time range, time zone and live mode. */
import type { ComponentChildren } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { useApp } from '../app.ts';
import { formatRange, timeOfDay } from '../format.ts';
import {
  DEFAULT_PRESET,
  endsNow,
  lastComparedDay,
  PRESETS,
  type PresetName,
  parseCompared,
  rangeProblem,
  resolveRange,
  type SelectedRange,
  shiftedRange,
} from '../time-range.ts';
import type { Query } from '../use-query.ts';
import { urlOf } from '../view.ts';
import {
  allOffsets,
  browserZone,
  fromLocal,
  parseOffset,
  toLocal,
  type Zone,
  zoneName,
  zonesByRegion,
} from '../zone.ts';
import { Button } from './button.tsx';
import { CopyButton } from './copy.tsx';
import { Field } from './form.tsx';
import { Icon } from './icon.tsx';
import { Popover } from './popover.tsx';
import { Problem } from './states.tsx';

interface ControlsProps {
  /** The data that live mode refreshes. */
  query?: Query<unknown>;
  /** Further filters of the page. */
  children?: ComponentChildren;
}

export function Controls({ query, children }: ControlsProps) {
  return (
    <div class="controls">
      <RangePicker />
      <ZonePicker />
      {children}
      <CopyLink />
      <LiveButton query={query} />
    </div>
  );
}

function RangePicker() {
  const { view, go } = useApp();
  const { selectedRange } = view;
  const chosen = 'preset' in selectedRange ? selectedRange.preset : null;
  const goBack = () => {
    // A shared link has no earlier view to go back to.
    if (history.state?.within === true) history.back();
    else go({ selectedRange: { preset: DEFAULT_PRESET } });
  };
  return (
    <div class="ranges">
      <div class={`segments ${chosen === null ? 'custom' : ''}`} role="group" aria-label="Time range">
        {VISIBLE.map((name) => (
          <PresetButton key={name} name={name} />
        ))}
        <CustomRange />
      </div>
      <div class="shift">
        <ShiftButton steps={-1} />
        <ShiftButton steps={1} />
      </div>
      {chosen === null && (
        <Button kind="quiet back" onClick={goBack} icon="back">
          Back
        </Button>
      )}
    </div>
  );
}

const NAMES = Object.keys(PRESETS) as PresetName[];
/** The others are in the menu, with the custom range. */
const VISIBLE: readonly PresetName[] = NAMES.filter((name) => name !== '6hours' && name !== '90days');

function isCalendar(name: PresetName): boolean {
  return 'days' in PRESETS[name];
}

function PresetButton({ name, close }: { name: PresetName; close?: () => void }) {
  const { view, zone, now, go } = useApp();
  const { label, title } = PRESETS[name];
  const choose = () => {
    close?.();
    go({ selectedRange: { preset: name } });
  };
  return (
    <button
      type="button"
      title={presetTitle(name, zone, now())}
      aria-label={label === title ? undefined : `${label}, ${title}`}
      aria-pressed={'preset' in view.selectedRange && view.selectedRange.preset === name}
      onClick={choose}
    >
      {label}
    </button>
  );
}

/** `Yesterday: Mon, 16 Nov`. Titles of hours need no explanation. */
function presetTitle(name: PresetName, zone: Zone, now: number): string {
  const { title } = PRESETS[name];
  if (!isCalendar(name)) return title;
  const { from, to } = resolveRange({ preset: name }, zone, now);
  return `${title}: ${formatRange(from, to, zone, now)}`;
}

/** Shows the previous or the next period. */
function ShiftButton({ steps }: { steps: -1 | 1 }) {
  const { view, zone, now, go } = useApp();
  const shifted = shiftedRange(view.selectedRange, zone, steps, now());
  const name = steps < 0 ? 'Previous period' : 'Next period';
  return (
    <Button
      kind="quiet square"
      title={shifted === null ? name : `${name}: ${formatRange(shifted.from, shifted.to, zone, now())}`}
      aria-label={name}
      disabled={shifted === null}
      onClick={() => shifted !== null && go({ selectedRange: shifted })}
      icon={steps < 0 ? 'left' : 'right'}
    />
  );
}

function customText(selected: SelectedRange, zone: Zone, now: number): string | null {
  if (!('preset' in selected)) return formatRange(selected.from, selected.to, zone, now);
  return VISIBLE.includes(selected.preset) ? null : PRESETS[selected.preset].title;
}

function CustomRange() {
  const { view, zone, now } = useApp();
  const text = customText(view.selectedRange, zone, now());
  return (
    <Popover
      name="Custom range"
      label={text === null ? 'Custom range' : `Custom range: ${text}`}
      title={text ?? 'Custom range'}
      pressed={text !== null}
      button={
        <>
          <Icon name="clock" />
          {text ?? 'Custom'}
        </>
      }
    >
      {(close) => <CustomRangeForm close={close} />}
    </Popover>
  );
}

function CustomRangeForm({ close }: { close(): void }) {
  const { view, zone, now, go } = useApp();
  const [problem, setProblem] = useState('');
  const [initial] = useState(() => resolveRange(view.selectedRange, zone, now()));
  const submit = (event: SubmitEvent & { currentTarget: HTMLFormElement }) => {
    event.preventDefault();
    const values = new FormData(event.currentTarget);
    const time = (name: string) => fromLocal(Date.parse(`${values.get(name)}Z`), zone);
    const range = { from: time('from'), to: time('to') };
    const found = rangeProblem(range);
    setProblem(found ?? '');
    if (found !== null) return;
    close();
    go({ selectedRange: range });
  };
  return (
    <form class="custom-range" onSubmit={submit}>
      <div class="segments compact" role="group" aria-label="More ranges">
        {NAMES.filter((name) => !VISIBLE.includes(name)).map((name) => (
          <PresetButton key={name} name={name} close={close} />
        ))}
      </div>
      <Field
        label="From"
        name="from"
        type="datetime-local"
        required
        defaultValue={inputValue(initial.from, zone)}
      />
      <Field
        label="To"
        name="to"
        type="datetime-local"
        required
        defaultValue={inputValue(initial.to, zone)}
        hint="The end is not included. Times are in the selected time zone."
      />
      <Problem text={problem} />
      <Button kind="primary" type="submit">
        Apply
      </Button>
    </form>
  );
}

/** What the key figures and the dashed line compare with. */
export function ComparePicker() {
  const { view, zone, now, go } = useApp();
  const { compared, selectedRange } = view;
  const max = lastComparedDay(selectedRange, resolveRange(selectedRange, zone, now()), zone);
  const isDate = compared !== 'previous' && compared !== 'week';
  const choose = (text: string) =>
    go({ compared: parseCompared(text === 'date' ? max : text) ?? 'previous' });
  return (
    <div class="compare">
      <select
        aria-label="Compare with"
        title="Compare with"
        value={isDate ? 'date' : compared}
        onChange={(event) => choose(event.currentTarget.value)}
      >
        <option value="previous">vs previous period</option>
        <option value="week">vs same weekdays before</option>
        <option value="date">vs a date</option>
      </select>
      {isDate && (
        <input
          type="date"
          aria-label="Date to compare with"
          value={compared}
          max={max}
          onChange={({ currentTarget: { value } }) => {
            const date = parseCompared(value);
            if (date !== null && value <= max) go({ compared: date });
          }}
        />
      )}
    </div>
  );
}

/** The value of a `datetime-local` input. */
function inputValue(time: number, zone: Zone): string {
  return new Date(toLocal(time, zone)).toISOString().slice(0, 16);
}

function ZonePicker() {
  const { view, zone, now, go } = useApp();
  const { timezone } = view;
  const [local] = useState(browserZone);
  const name = zoneName(now(), zone, timezone);
  // Hundreds of options: Preact skips the same element.
  const listed = useMemo(
    () => <ListedZones local={local.id} selected={timezone} name={name} />,
    [timezone, name],
  );
  return (
    <div class="with-icon zone">
      <Icon name="globe" />
      <select
        aria-label="Time zone"
        title={`Times are in ${name}. A named time zone follows clock changes. The offset shown is the current one.`}
        value={timezone}
        onChange={(event) => go({ timezone: event.currentTarget.value })}
      >
        {listed}
      </select>
    </div>
  );
}

/** Only the selected zone has its offset: to compute hundreds would delay the page. Typing a city finds it. */
function ListedZones({ local, selected, name }: { local: string; selected: string; name: string }) {
  const groups = new Map([['This browser', [local]], ...zonesByRegion(), ['Offsets', allOffsets()]]);
  // A URL can hold any zone, such as +05:37 or CET.
  if (![...groups.values()].flat().includes(selected)) groups.set('Other', [selected]);
  const text = (id: string) => (parseOffset(id) === null ? cityOf(id) : `UTC${id}`);
  return [...groups].map(([group, ids]) => (
    <optgroup key={group} label={group}>
      {ids.map((id) => (
        <option key={id} value={id}>
          {id === selected ? name : text(id)}
        </option>
      ))}
    </optgroup>
  ));
}

/** `Buenos Aires (Argentina)` of `America/Argentina/Buenos_Aires`. */
function cityOf(id: string): string {
  const [city = id, ...regions] = id.replaceAll('_', ' ').split('/').toReversed();
  return regions.length > 1 ? `${city} (${regions[0]})` : city;
}

/** The same numbers for everyone, and later: the range is that of now. */
function CopyLink() {
  const { view, zone, project, now } = useApp();
  const link = () => {
    const selectedRange = resolveRange(view.selectedRange, zone, now());
    return location.origin + urlOf({ ...view, project: project?.id ?? null, selectedRange });
  };
  return <CopyButton text={link} label="Copy link" kind="" />;
}

/** Says when the numbers were loaded, and whether refreshing works. A click pauses it. */
function LiveButton({ query }: { query: Query<unknown> | undefined }) {
  const { view, zone, go } = useApp();
  const { live, selectedRange } = view;
  if (!endsNow(selectedRange)) return null;
  const updated = query?.updatedAt ? timeOfDay(query.updatedAt, zone) : null;
  const isFailing = live && query !== undefined && query.failure !== null;
  const name = isFailing ? 'Retrying' : live ? 'Live' : 'Paused';
  const since = isFailing ? 'not updated since' : 'updated';
  return (
    <button
      class={`button live ${isFailing ? 'failing' : ''}`}
      type="button"
      aria-pressed={live}
      title={live ? 'Updates automatically. Click to pause.' : 'Paused. Click to resume.'}
      onClick={() => go({ live: !live }, 'replace')}
    >
      {live ? <span class="pulse" /> : <Icon name="pause" />}
      <span class="label">{name}</span>
      {updated !== null && <span class="updated">{`${since} ${updated}`}</span>}
      <span class="offscreen" role="alert">
        {isFailing && 'The service is not responding. Trying again.'}
      </span>
    </button>
  );
}

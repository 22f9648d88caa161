/** What is looked at: which time, on whose clock, on which hosts, and whether it goes on. */
import type { App } from '../app.ts';
import { fill, h } from '../dom.ts';
import { stretch } from '../format.ts';
import { icon } from '../icons.ts';
import { DEFAULT_PRESET, endsNow, PRESETS, type PresetName } from '../time-span.ts';
import { allOffsets, browserOffset } from '../time-zone.ts';
import { hostPicker } from './host-picker.ts';
import { ownRange } from './own-range.ts';

export interface Controls {
  element: HTMLElement;
  show(): void;
}

export function controls(app: App, choosesHosts: boolean): Controls {
  const parts = [
    rangePicker(app),
    zonePicker(app),
    ...(choosesHosts ? [hostPicker(app)] : []),
    liveButton(app),
  ];
  return {
    element: h('div', { class: 'controls' }, ...parts.map(({ element }) => element)),
    show() {
      for (const part of parts) part.show();
    },
  };
}

function rangePicker(app: App): Controls {
  const presets = (Object.keys(PRESETS) as PresetName[]).map((name) => {
    const { label, title } = PRESETS[name];
    const choose = () => app.go({ span: { preset: name }, offset: 0 });
    const button = h(
      'button',
      {
        type: 'button',
        'aria-label': label === title ? null : `${label}, ${title}`,
        title,
        on: { click: choose },
      },
      label,
    );
    return { name, button };
  });
  const own = ownRange(app);
  const back = h('button', { class: 'button quiet', type: 'button', hidden: true }, icon('back'), 'Back');
  back.addEventListener('click', () => {
    // Where one came from, if that was here; a shared link has no such place.
    if (history.state?.within === true) history.back();
    else app.go({ span: { preset: DEFAULT_PRESET } });
  });
  const segments = h(
    'div',
    { class: 'segments', role: 'group', 'aria-label': 'Time range' },
    ...presets.map(({ button }) => button),
    own.element,
  );
  return {
    element: h('div', { class: 'ranges' }, segments, back),
    show() {
      const { span } = app.view();
      const preset = 'preset' in span ? span.preset : null;
      for (const { name, button } of presets) button.setAttribute('aria-pressed', String(name === preset));
      own.label(preset === null && 'from' in span ? stretch(span.from, span.to, app.offsetMs()) : null);
      segments.classList.toggle('own', preset === null);
      back.hidden = preset !== null;
    },
  };
}

function zonePicker(app: App): Controls {
  const select = h('select', { 'aria-label': 'Time zone' });
  const change = () => app.go({ timezone: select.value === '' ? null : select.value });
  select.addEventListener('change', change);
  return {
    element: h('div', { class: 'with-icon' }, icon('globe'), select),
    show() {
      const { timezone } = app.view();
      const own = browserOffset(app.now());
      const offsets = allOffsets();
      // An address can hold any, such as +05:37.
      if (timezone !== null && !offsets.includes(timezone)) offsets.push(timezone);
      fill(
        select,
        h('option', { value: '' }, `Local, UTC${own}`),
        ...offsets.map((offset) => h('option', { value: offset }, `UTC${offset}`)),
      );
      select.value = timezone ?? '';
    },
  };
}

function liveButton(app: App): Controls {
  const button = h('button', { class: 'button live', type: 'button' });
  button.addEventListener('click', () => app.go({ live: !app.view().live }, 'refine'));
  return {
    element: button,
    show() {
      const { live, span } = app.view();
      button.hidden = !endsNow(span);
      button.setAttribute('aria-pressed', String(live));
      button.title = live ? 'New events show up every 5 seconds. Click to pause.' : 'Paused. Click to go on.';
      const name = live ? 'Live' : 'Paused';
      button.setAttribute('aria-label', name);
      fill(button, live ? h('span', { class: 'pulse' }) : icon('pause'), h('span', { class: 'label' }, name));
    },
  };
}

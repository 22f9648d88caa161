/** Connects a log source: choose the program, copy the command, and see the first lines arrive. */
import type { ComponentChildren } from 'preact';
import { useRef, useState } from 'preact/hooks';
import type { IngestKey, SourceHealth } from '../api.ts';
import { useApp, useProject } from '../app.ts';
import { total } from '../counts.ts';
import { formatCount, plural } from '../format.ts';
import { Button } from '../parts/button.tsx';
import { CopyButton } from '../parts/copy.tsx';
import { Drops, droppedOf } from '../parts/drops.tsx';
import { PageLink } from '../parts/frame.tsx';
import { keyValues, Secret } from '../parts/keys.tsx';
import { Problem, sentence } from '../parts/states.tsx';
import {
  instructionsFor,
  isLocalOnly,
  PLACEHOLDER_KEY,
  PROGRAMS,
  type Program,
  type Step,
  type Target,
  testEvent,
} from '../setup-commands.ts';
import { useAction, useQuery } from '../use-query.ts';

/** `title`: by default, that the project has no data. */
export function FirstRun({ title }: { title?: string }) {
  const { api, ingestKeys } = useApp();
  const { id, name } = useProject();
  const [program, setProgram] = useState<Program>('nginx');
  const [key, setKey] = useState(ingestKeys.get(id) ?? null);
  const created = (ingestKey: IngestKey) => {
    ingestKeys.set(id, ingestKey);
    setKey(ingestKey);
  };
  // Without it, the page would say for good that this user may not create keys.
  const [hasSetup, setHasSetup] = useState(false);
  const loadSetup = async () => {
    const loaded = await api.setup(id);
    setHasSetup(true);
    return loaded;
  };
  const { data: setup } = useQuery(`setup ${id}`, loadSetup, { refresh: !hasSetup });
  const target: Target = {
    origin: location.origin,
    project: id,
    program: setup?.program ?? 'wafstat',
    options: [
      ...(setup && setup.options.length > 0 ? setup.options : ['--data', 'DATA_DIRECTORY']),
      ...(setup?.counting ?? []),
    ],
    key: key ?? PLACEHOLDER_KEY,
  };
  const { prepare, local, remote } = instructionsFor(program, target);
  return (
    <div class="first-run">
      <h2>{title ?? `${name} has no data yet`}</h2>
      <Arrivals />
      <Part number={1} title="What writes your logs?">
        <Programs program={program} choose={setProgram} />
        {prepare.map((step) => (
          <StepCode key={step.code} step={step} />
        ))}
      </Part>
      <Part number={2} title="Count them on this server">
        {setup?.program === null && (
          <p>
            Ask an administrator for the path of the program, the data directory, and the options of the
            store.
          </p>
        )}
        {local.map((step) => (
          <StepCode key={step.code} step={step} />
        ))}
        <p class="hint">
          Run this as the user of the service and with its environment variables: the command contains no
          passwords. With the Debian package, use <code>wafstat-follow@.service</code> or{' '}
          <code>wafstat-admin</code>.
        </p>
      </Part>
      <Part number={3} title="Or send them from another machine">
        {isLocalOnly(target.origin) && (
          <p class="hint">
            The commands contain the address of this page, <code>{target.origin}</code>, which only this
            machine can reach. Replace it with the address of the service in your network.
          </p>
        )}
        <KeyStep ingestKey={key} created={created} mayCreate={setup?.can_create_key ?? false} />
        {remote.map((step) => (
          <StepCode key={step.code} step={step} />
        ))}
        <StepCode
          step={{ text: 'Send one sample attack, to see that it arrives:', code: testEvent(target) }}
        />
      </Part>
    </div>
  );
}

function Part({ number, title, children }: { number: number; title: string; children: ComponentChildren }) {
  return (
    <section class="card" aria-label={title}>
      <h3>
        <span class="step-number" aria-hidden="true">
          {number}
        </span>
        {title}
      </h3>
      {children}
    </section>
  );
}

function StepCode({ step: { text, code } }: { step: Step }) {
  return (
    <>
      <p>{text}</p>
      <div class="command">
        <pre tabIndex={0} role="region" aria-label={text}>
          <code>{code}</code>
        </pre>
        <CopyButton text={code} />
      </div>
    </>
  );
}

function Programs({ program, choose }: { program: Program; choose(program: Program): void }) {
  return (
    <fieldset class="programs">
      <legend class="offscreen">Program</legend>
      {(Object.keys(PROGRAMS) as Program[]).map((name) => (
        <label key={name} class={name === program ? 'chosen' : ''}>
          <input
            type="radio"
            name="program"
            value={name}
            checked={name === program}
            onChange={() => choose(name)}
          />
          {PROGRAMS[name]}
        </label>
      ))}
    </fieldset>
  );
}

interface KeyStepProps {
  ingestKey: IngestKey | null;
  created(key: IngestKey): void;
  mayCreate: boolean;
}

function KeyStep({ ingestKey, created, mayCreate }: KeyStepProps) {
  const { api } = useApp();
  const { id } = useProject();
  const { run, problem, isRunning } = useAction();
  if (ingestKey !== null)
    return (
      <Secret values={keyValues(ingestKey)}>
        <strong>{`Ingest key of the user ${ingestKey.user}.`}</strong> The commands below contain it. Copy it
        now; the secret won't be shown again after you reload the page or sign out.
      </Secret>
    );
  if (!mayCreate)
    return <p>You need an access key of a user with the role ingest. Ask an administrator for one.</p>;
  return (
    <>
      <p>
        An ingest key can send logs to this project, and read nothing. If you have one, use it in the commands
        below: the button creates another one, and existing keys keep working.
      </p>
      <div class="form-end">
        <Button
          kind="primary"
          disabled={isRunning}
          onClick={() => void run(async () => created(await api.addIngestKey(id)))}
        >
          Create ingest key
        </Button>
        <Problem text={problem} />
      </div>
    </>
  );
}

/** What has arrived since the page was opened. */
function Arrivals() {
  const { api } = useApp();
  const { id } = useProject();
  const { data, failure } = useQuery(`arrivals ${id}`, (signal) => api.sources(id, signal), {
    refresh: true,
  });
  const before = useRef<readonly SourceHealth[] | null>(null);
  // Until something counts, all drops are shown: also those from before.
  if (data !== null) before.current ??= data.items.some(({ events }) => events > 0) ? data.items : [];
  const arrived = data === null ? [] : data.items.map((source) => since(source, before.current ?? []));
  const counted = total(arrived.map(({ events }) => events));
  const dropped = total(arrived.map(droppedOf));
  const withoutHost = total(arrived.map(({ without_host }) => without_host));
  if (failure !== null)
    return (
      <div class="arrivals bad" role="alert">
        {`${sentence(failure)} Trying again.`}
      </div>
    );
  if (counted + dropped === 0)
    return (
      <p class="arrivals waiting" role="status">
        <span class="pulse" aria-hidden="true" />
        {before.current?.length ? 'Waiting for new events...' : 'Waiting for the first event...'}
      </p>
    );
  return (
    <section class={`arrivals card ${counted > 0 ? 'good' : 'bad'}`} aria-label="Arrived" role="status">
      <h3>
        {counted > 0
          ? `${plural(counted, 'record')} counted, ${formatCount(dropped)} dropped`
          : `${plural(dropped, 'record')} arrived, and ${dropped === 1 ? 'was' : 'all were'} dropped`}
      </h3>
      {withoutHost > 0 && (
        <p>
          {`${formatCount(withoutHost)} of them have no host, and count in the project's total only: log the host name (step 1), or pass `}
          <code>--host NAME</code>.
        </p>
      )}
      {dropped > 0 && <Drops sources={arrived} />}
      {counted > 0 && (
        <p>
          <PageLink to={{ page: 'dashboard' }}>Open the dashboard</PageLink>
        </p>
      )}
    </section>
  );
}

function since(source: SourceHealth, before: readonly SourceHealth[]): SourceHealth {
  const old = before.find(({ id }) => id === source.id);
  if (old === undefined) return source;
  const dropped = Object.fromEntries(
    Object.entries(source.dropped).map(([reason, n]) => [reason, n - (old.dropped[reason] ?? 0)]),
  );
  return {
    ...source,
    dropped,
    events: source.events - old.events,
    without_host: source.without_host - old.without_host,
  };
}

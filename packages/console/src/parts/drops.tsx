/** Dropped records: how many, why, what they look like, and what to do. */
import type { SourceHealth } from '../api.ts';
import { useApp } from '../app.ts';
import { total } from '../counts.ts';
import { plural, share } from '../format.ts';

export const droppedOf = ({ dropped }: Pick<SourceHealth, 'dropped'>) => total(Object.values(dropped));

/** All records that were read. */
export const recordsOf = (source: Pick<SourceHealth, 'events' | 'dropped'>) =>
  source.events + droppedOf(source);

/** Drops that need no action are shown, but not as a warning. */
const EXPECTED: readonly string[] = ['other_log_line', 'not_an_attack', 'same_request'];

/** Whether the drops of a source need attention. */
export function hasUnexpectedDrops({ dropped }: Pick<SourceHealth, 'dropped'>): boolean {
  return Object.entries(dropped).some(([reason, n]) => n > 0 && !EXPECTED.includes(reason));
}

interface DropsProps {
  sources: readonly SourceHealth[];
}

export function Drops({ sources }: DropsProps) {
  const drops = sources.flatMap((source) =>
    Object.entries(source.dropped)
      .filter(([, records]) => records > 0)
      .map(([reason, records]) => ({ source, reason, records })),
  );
  const isExpected = ({ reason }: { reason: string }) => EXPECTED.includes(reason);
  const sorted = drops.toSorted(
    (a, b) => Number(isExpected(a)) - Number(isExpected(b)) || b.records - a.records,
  );
  return (
    <ul class="drops">
      {sorted.map(({ source, reason, records }) => (
        <Drop key={`${source.id} ${reason}`} source={source} reason={reason} records={records} />
      ))}
    </ul>
  );
}

function Drop({ source, reason, records }: { source: SourceHealth; reason: string; records: number }) {
  const { session } = useApp();
  const why = session.drop_reasons[reason] ?? reason;
  const fix = session.drop_fixes[reason];
  const example = source.examples[reason];
  return (
    <li class="card drop">
      <div class="drop-head">
        <strong>{why.charAt(0).toUpperCase() + why.slice(1)}</strong>
        <span class={EXPECTED.includes(reason) ? 'faint' : 'attack'}>
          {`${plural(records, 'record')}, ${share(records, recordsOf(source))}`}
        </span>
      </div>
      <p class="hint">
        Source {source.name}, reason <code>{reason}</code>
      </p>
      {example !== undefined && (
        <pre class="example" tabIndex={0} role="region" aria-label={`Example of ${reason}`}>
          <code>{example}</code>
        </pre>
      )}
      {fix !== undefined && (
        <p>
          <strong>Fix:</strong> {fix}
        </p>
      )}
    </li>
  );
}

/** Chooses hosts by name. */
import { useRef, useState } from 'preact/hooks';
import { useApp, useProject } from '../app.ts';
import { useQuery } from '../use-query.ts';
import { Button } from './button.tsx';
import { Icon } from './icon.tsx';
import { Popover } from './popover.tsx';
import { SearchBox } from './search-box.tsx';
import { sentence } from './states.tsx';

/** Search finds the rest. */
const LISTED_MAX = 100;

export function HostPicker({ names }: { names: ReadonlyMap<string, string> }) {
  const { hosts } = useApp().view;
  const [first] = hosts;
  let label = first === undefined ? 'All hosts' : `${hosts.length} hosts`;
  if (first !== undefined && hosts.length === 1) label = names.get(first) ?? '1 host';
  return (
    <Popover
      name="Hosts"
      label={`Hosts: ${label}`}
      class="button"
      button={
        <>
          <Icon name="server" />
          <span class="cut">{label}</span>
          <Icon name="down" />
        </>
      }
    >
      {(close) => <HostList close={close} />}
    </Popover>
  );
}

function HostList({ close }: { close(): void }) {
  const { api, view, go } = useApp();
  const project = useProject();
  const [search, setSearch] = useState('');
  const hasPushed = useRef(false);
  const { data, failure } = useQuery(`hosts ${project.id} ${search}`, (signal) =>
    api.client(project.id).hosts({ hostname: search, limit: LISTED_MAX, signal }),
  );
  /** All changes while the list is open are one history entry. */
  const choose = (hosts: readonly string[]) => {
    go({ hosts }, hasPushed.current ? 'replace' : 'push');
    hasPushed.current = true;
  };
  const toggle = (id: string, isOn: boolean) => {
    const others = view.hosts.filter((chosen) => chosen !== id);
    choose(isOn ? [...others, id] : others);
  };
  const chooseAll = () => {
    choose([]);
    close();
  };
  return (
    <div class="host-picker">
      <SearchBox name="Find a host" value={search} search={setSearch} />
      <div class="host-list" role="group" aria-label="Hosts">
        {data?.items.map(({ id, hostname }) => (
          <label key={id}>
            <input
              type="checkbox"
              checked={view.hosts.includes(id)}
              onChange={(event) => toggle(id, event.currentTarget.checked)}
            />
            <span>{hostname}</span>
          </label>
        ))}
      </div>
      <p class="hint" role="status">
        {failure === null ? data && moreText(data.total, data.items.length) : sentence(failure)}
      </p>
      <Button kind="small" disabled={view.hosts.length === 0} onClick={chooseAll}>
        All hosts
      </Button>
    </div>
  );
}

function moreText(total: number, listed: number): string {
  if (total === 0) return 'No matching host';
  return total === listed ? '' : `${total - listed} more. Search to find them.`;
}

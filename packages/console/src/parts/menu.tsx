/** A button that opens a list of actions. */
import { useState } from 'preact/hooks';
import { copyText } from './copy.tsx';
import { Icon, type IconName } from './icon.tsx';
import { Popover } from './popover.tsx';

export type MenuItem = {
  label: string;
  /** What else to know, below the label. */
  note?: string | undefined;
} & ({ run(): unknown } | { copy: string });

/** The query of a panel as commands. `scope` says what they cannot filter. */
export function copyItems(curl: string, command: string, scope?: string): MenuItem[] {
  const profile = 'Uses the default profile of wafstat configure';
  return [
    { label: 'Copy as curl', copy: curl, note: scope },
    {
      label: 'Copy as command line',
      copy: command,
      note: scope === undefined ? profile : `${profile}. ${scope}`,
    },
  ];
}

interface MenuProps {
  name: string;
  icon: IconName;
  items: readonly MenuItem[];
}

export function Menu({ name, icon, items }: MenuProps) {
  return (
    <Popover
      name={name}
      label={name}
      title={name}
      class="button quiet small square"
      button={<Icon name={icon} />}
    >
      {(close) => (
        <ul class="menu-items">
          {items.map((item) => (
            <li key={item.label}>
              <MenuButton item={item} close={close} />
            </li>
          ))}
        </ul>
      )}
    </Popover>
  );
}

/** After a copy, the menu stays open to say so. */
function MenuButton({ item, close }: { item: MenuItem; close(): void }) {
  const [outcome, setOutcome] = useState<string | null>(null);
  const choose = async () => {
    if ('copy' in item) setOutcome((await copyText(item.copy)) ? 'Copied' : 'Copy failed');
    else {
      close();
      item.run();
    }
  };
  return (
    <button class="menu-item" type="button" onClick={choose}>
      <Icon name={'copy' in item ? (outcome === 'Copied' ? 'done' : 'copy') : 'download'} />
      <span>
        {item.label}
        {item.note && <span class="note">{item.note}</span>}
      </span>
      <span class="hint" role="status">
        {outcome}
      </span>
    </button>
  );
}

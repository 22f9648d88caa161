/** An input that filters a list. */
import { Icon } from './icon.tsx';

interface SearchBoxProps {
  /** The placeholder, also for screen readers. */
  name: string;
  value: string;
  search(text: string): void;
}

export function SearchBox({ name, value, search }: SearchBoxProps) {
  return (
    <div class="with-icon">
      <Icon name="search" />
      <input
        type="search"
        placeholder={name}
        aria-label={name}
        autocomplete="off"
        spellcheck={false}
        value={value}
        onInput={(event) => search(event.currentTarget.value)}
      />
    </div>
  );
}

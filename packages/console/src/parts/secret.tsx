/** A value that is shown once, with a button that copies it. For use in a list of definitions. */
import { CopyButton } from './copy.tsx';

export function SecretValue({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        <code>{value}</code>
        <CopyButton text={value} label={`Copy ${name.charAt(0).toLowerCase()}${name.slice(1)}`} />
      </dd>
    </div>
  );
}

/** Buttons. */
import type { ButtonHTMLAttributes } from 'preact';
import { Icon, type IconName } from './icon.tsx';

type ButtonProps = ButtonHTMLAttributes & {
  /** Classes, such as `primary` or `quiet small`. */
  kind?: string;
  icon?: IconName;
};

export function Button({ kind = '', icon, children, ...rest }: ButtonProps) {
  return (
    <button class={`button ${kind}`} type="button" {...rest}>
      {icon && <Icon name={icon} />}
      {children}
    </button>
  );
}

/** Shown at any URL until the user has signed in. */
import type { Api, Session } from '../api.ts';
import { h } from '../dom.ts';
import { field } from '../parts/form.ts';
import { logo } from '../parts/shell.ts';
import { sentence } from '../parts/states.ts';

export function signInPage(api: Api, signedIn: (session: Session) => void): HTMLElement {
  const props = { autocapitalize: 'none', required: true };
  const user = field('User', { ...props, name: 'user', autocomplete: 'username' });
  const organization = { name: 'domain', value: 'default', autocomplete: 'organization' };
  const domain = field('Domain', { ...props, ...organization });
  const secret = { name: 'password', type: 'password', autocomplete: 'current-password' };
  const password = field('Password', { ...props, ...secret });
  const problem = h('p', { class: 'problem', role: 'alert' });
  const button = h('button', { class: 'button primary', type: 'submit' }, 'Sign in');
  const form = h(
    'form',
    { class: 'card sign-in' },
    h('div', { class: 'brand' }, logo(), h('h1', {}, 'wafstat')),
    h('p', { class: 'hint' }, 'Statistics for your web application firewall'),
    user.element,
    domain.element,
    password.element,
    problem,
    button,
  );
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    problem.textContent = '';
    button.disabled = true;
    try {
      const account = { user: user.input.value, domain: domain.input.value, password: password.input.value };
      signedIn(await api.signIn(account));
    } catch (failure) {
      problem.textContent = sentence(failure);
      password.input.select();
    } finally {
      button.disabled = false;
    }
  });
  queueMicrotask(() => user.input.focus());
  return h('main', { class: 'alone' }, form);
}

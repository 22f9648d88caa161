/** Shown at any URL until the user has signed in. */
import type { Api, Session } from '../api.ts';
import { h } from '../dom.ts';
import { field } from '../parts/form.ts';
import { logo } from '../parts/shell.ts';
import { sentence } from '../parts/states.ts';

export function signInPage(api: Api, signedIn: (session: Session) => void): HTMLElement {
  const user = field('User', {
    name: 'user',
    autocomplete: 'username',
    autocapitalize: 'none',
    required: true,
  });
  const domain = field('Domain', {
    name: 'domain',
    value: 'default',
    autocomplete: 'organization',
    autocapitalize: 'none',
    required: true,
  });
  const password = field('Password', {
    name: 'password',
    type: 'password',
    autocomplete: 'current-password',
    required: true,
  });
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
      signedIn(
        await api.signIn({
          user: user.input.value,
          domain: domain.input.value,
          password: password.input.value,
        }),
      );
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

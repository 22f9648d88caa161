/** For a project without data: commands that send some. */
import type { App } from '../app.ts';
import { h } from '../dom.ts';
import { command } from '../parts/copy.ts';

export function firstRun(app: App): HTMLElement {
  const { origin } = location;
  const { id } = app.project;
  const { name, domain } = app.session.user;
  const login = JSON.stringify({
    auth: {
      identity: {
        methods: ['password'],
        password: { user: { name, password: 'PASSWORD', domain: { name: domain } } },
      },
      scope: { project: { id } },
    },
  });
  const token = `TOKEN=$(curl -si ${origin}/v3/auth/tokens -H 'Content-Type: application/json' -d '${login.replaceAll("'", "'\\''")}' | tr -d '\\r' | sed -n 's/^[Xx]-[Ss]ubject-[Tt]oken: //p')`;
  const event = `curl -H "X-Auth-Token: $TOKEN" ${origin}/ingest/v1/${id} --data-binary '{"time": '$(date +%s000)', "host": "www.example.com", "attack": "sqli"}'`;
  const push = `curl -H "X-Auth-Token: $TOKEN" '${origin}/ingest/v1/${id}?source=web1' --data-binary @access.log`;
  const follow = `wafstat follow --data ./data --project ${id} --source web1 /var/log/nginx/access.log`;
  return h(
    'div',
    { class: 'first-run' },
    h('h2', {}, `${app.project.name} has no data yet`),
    h('p', {}, 'Send log lines in one of these ways. Waiting for the first event...'),
    step('On the server', 'Follow a log file, across rotation and restarts.', [follow]),
    step(
      'Over HTTP',
      app.session.user.access === 'console'
        ? 'Use a user with programmatic access and the role ingest in this project: put the name and password into the first command. The token is valid for 24 hours.'
        : 'Get a token: replace PASSWORD with your password. The token is valid for 24 hours. Then send log lines unchanged.',
      [token, push],
    ),
    step('Test event', 'Send one sample attack.', [event]),
  );
}

function step(title: string, text: string, commands: readonly string[]): HTMLElement {
  return h(
    'section',
    { class: 'card' },
    h('h3', {}, title),
    h('p', {}, text),
    ...commands.map((line, i) => command(`${title}, command ${i + 1}`, line).element),
  );
}

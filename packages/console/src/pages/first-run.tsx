/** For a project without data: commands that send some. */
import { useApp, useProject } from '../app.ts';
import { Command } from '../parts/copy.tsx';

export function FirstRun() {
  const { user } = useApp().session;
  const { id, name: project } = useProject();
  const { origin } = location;
  const login = JSON.stringify({
    auth: {
      identity: {
        methods: ['password'],
        password: { user: { name: user.name, password: 'PASSWORD', domain: { name: user.domain } } },
      },
      scope: { project: { id } },
    },
  });
  const token = `TOKEN=$(curl -si ${origin}/v3/auth/tokens -H 'Content-Type: application/json' -d '${login.replaceAll("'", "'\\''")}' | tr -d '\\r' | sed -n 's/^[Xx]-[Ss]ubject-[Tt]oken: //p')`;
  const event = `curl -H "X-Auth-Token: $TOKEN" ${origin}/ingest/v1/${id} --data-binary '{"time": '$(date +%s000)', "host": "www.example.com", "attack": "sqli"}'`;
  const push = `curl -H "X-Auth-Token: $TOKEN" '${origin}/ingest/v1/${id}?source=web1' --data-binary @access.log`;
  const follow = `wafstat follow --data ./data --project ${id} --source web1 /var/log/nginx/access.log`;
  return (
    <div class="first-run">
      <h2>{`${project} has no data yet`}</h2>
      <p>Send log lines in one of these ways. Waiting for the first event...</p>
      <Step
        title="On the server"
        text="Follow a log file, across rotation and restarts."
        commands={[follow]}
      />
      <Step
        title="Over HTTP"
        text={
          user.access === 'console'
            ? 'Use a user with programmatic access and the role ingest in this project: put the name and password into the first command. The token is valid for 24 hours.'
            : 'Get a token: replace PASSWORD with your password. The token is valid for 24 hours. Then send log lines unchanged.'
        }
        commands={[token, push]}
      />
      <Step title="Test event" text="Send one sample attack." commands={[event]} />
    </div>
  );
}

function Step({ title, text, commands }: { title: string; text: string; commands: readonly string[] }) {
  return (
    <section class="card">
      <h3>{title}</h3>
      <p>{text}</p>
      {commands.map((line, i) => (
        <Command key={line} name={`${title}, command ${i + 1}`} text={line} />
      ))}
    </section>
  );
}

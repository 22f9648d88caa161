/** Users, roles, access keys and projects of the domain, for administrators. */
import { Projects } from '../administration/projects.tsx';
import { Users } from '../administration/users.tsx';
import { useApp } from '../app.ts';
import { PageHead } from '../parts/frame.tsx';
import { QueryState } from '../parts/states.tsx';
import { useQuery } from '../use-query.ts';

export function AdministrationPage() {
  const { api, session } = useApp();
  const hasProjects = session.projects.length > 0;
  const query = useQuery('administration', () => api.administration(session.user.domain_id));
  const { data, reload } = query;
  const projects = data !== null && <Projects administration={data} reload={reload} />;
  return (
    <div class="page">
      <PageHead level={1} title="Users and projects">
        <p class="hint">Domain {session.user.domain}</p>
      </PageHead>
      {!hasProjects && (
        <p class="notice" role="status">
          There is no enabled project: nobody can read statistics or send logs. Enable a project, or create
          one.
        </p>
      )}
      <QueryState query={query} />
      {!hasProjects && projects}
      {data !== null && <Users administration={data} reload={reload} />}
      {hasProjects && projects}
    </div>
  );
}

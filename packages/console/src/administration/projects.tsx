/** The projects of the domain. */
import { useState } from 'preact/hooks';
import type { ManagedProject } from '../api.ts';
import { useApp } from '../app.ts';
import { date } from '../format.ts';
import { Button } from '../parts/button.tsx';
import { CopyValue } from '../parts/copy.tsx';
import { Confirm, FormDialog } from '../parts/dialog.tsx';
import { Field } from '../parts/form.tsx';
import { PageHead } from '../parts/frame.tsx';
import { Problem } from '../parts/states.tsx';
import {
  actionsColumn,
  byText,
  type Column,
  enabledColumn,
  RowButton,
  RowName,
  Table,
} from '../parts/table.tsx';
import { useAction } from '../use-query.ts';
import type { SectionProps } from './names.ts';

type ProjectDialog = { kind: 'new' } | { kind: 'disable' | 'delete'; project: ManagedProject };

export function Projects({ administration, reload }: SectionProps) {
  const app = useApp();
  const { run, problem } = useAction();
  const [dialog, setDialog] = useState<ProjectDialog | null>(null);
  const close = () => setDialog(null);
  /** The session has the enabled projects. */
  const reloadAll = async () => {
    await app.reload();
    reload();
  };
  const enable = async (id: string) => {
    if (await run(() => app.api.setProjectEnabled(id, true))) await reloadAll();
  };
  const columns: Column<ManagedProject>[] = [
    {
      title: 'Project',
      cell: ({ name }) => <RowName name={name} />,
      compare: byText(({ name }) => name),
    },
    {
      title: 'ID',
      cell: ({ id }) => (
        <CopyValue text={id}>
          <code>{id}</code>
        </CopyValue>
      ),
    },
    {
      title: 'Created',
      cell: ({ create_time }) => date(Date.parse(create_time), app.zone, app.now()),
      compare: byText(({ create_time }) => create_time),
    },
    enabledColumn(),
    actionsColumn((project) => (
      <div class="buttons">
        <RowButton
          label={project.enabled ? 'Disable' : 'Enable'}
          name={project.name}
          onClick={() =>
            project.enabled ? setDialog({ kind: 'disable', project }) : void enable(project.id)
          }
        />
        <RowButton
          label="Delete"
          name={project.name}
          onClick={() => setDialog({ kind: 'delete', project })}
        />
      </div>
    )),
  ];
  const isLast = (project: ManagedProject) =>
    project.enabled && !administration.projects.some(({ id, enabled }) => enabled && id !== project.id);
  return (
    <section>
      <PageHead level={2} title="Projects">
        <Button kind="primary" onClick={() => setDialog({ kind: 'new' })} icon="plus">
          New project
        </Button>
      </PageHead>
      <Problem text={problem} />
      <Table
        name="Projects"
        columns={columns}
        rows={administration.projects}
        keyOf={({ id }) => id}
        initialSort={{ by: 'Project', descending: false }}
      />
      {dialog?.kind === 'new' && (
        <FormDialog
          title="New project"
          verb="Create"
          submit={async ({ name = '' }) => {
            await app.api.addProject(name);
            await reloadAll();
          }}
          close={close}
        >
          <Field label="Name" name="name" required maxLength={64} />
        </FormDialog>
      )}
      {dialog !== null && dialog.kind !== 'new' && (
        <Confirm
          key={dialog.kind}
          title={`${dialog.kind === 'disable' ? 'Disable' : 'Delete'} ${dialog.project.name}?`}
          verb={`${dialog.kind === 'disable' ? 'Disable' : 'Delete'} project`}
          {...(dialog.kind === 'delete' || isLast(dialog.project) ? { typed: dialog.project.name } : {})}
          act={async () => {
            const { id, name } = dialog.project;
            if (dialog.kind === 'disable') await app.api.setProjectEnabled(id, false, name);
            else await app.api.removeProject(id, name);
            await reloadAll();
          }}
          close={close}
        >
          {dialog.kind === 'disable'
            ? `Nobody can read the statistics of ${dialog.project.name} or send logs to it, and its tokens stop working. You can enable it again.`
            : `The statistics of ${dialog.project.name} can no longer be read, not even by a new project with the same name. Its kept attacks and top lists and all roles in it are deleted, and log shippers get errors. This cannot be undone.`}
          {isLast(dialog.project) && LAST_PROJECT}
        </Confirm>
      )}
    </section>
  );
}

const LAST_PROJECT = (
  <strong>
    {' '}
    It is the last enabled project: until you enable or create another one, only this page works.
  </strong>
);

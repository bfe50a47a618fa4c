import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { Link } from 'react-router';
import { answer, api, type Task } from '../api/client.ts';
import { isOver, useTask } from '../live/tasks.ts';
import { useWords } from '../texts/index.tsx';
import { ActionButton } from './actions.tsx';
import { cancelReason } from './reasons.ts';
import { TaskProgress } from './task-progress.tsx';
import { useToasts } from './toasts.tsx';
import { useAsked } from './use-asked.ts';

export function TaskTable({ tasks }: { tasks: readonly Task[] }) {
  const { texts } = useWords();
  const words = texts.tasks;
  return (
    <Table aria-label={words.title} variant="compact" gridBreakPoint="grid-lg">
      <Thead>
        <Tr>
          <Th modifier="wrap">{words.task}</Th>
          <Th modifier="wrap">{words.progress}</Th>
          <Th modifier="wrap">{words.started}</Th>
          <Th modifier="wrap">{words.took}</Th>
          <Th modifier="wrap">{words.user}</Th>
          <Th screenReaderText={texts.list.actions} />
        </Tr>
      </Thead>
      <Tbody>
        {tasks.map(task => (
          <Row key={task.id} task={task} />
        ))}
      </Tbody>
    </Table>
  );
}

function Row({ task }: { task: Task }) {
  const { texts, format } = useWords();
  const words = texts.tasks;
  const vm = Object.entries(task.entities).find(([, kind]) => kind === 'domain')?.[0];
  return (
    <Tr>
      <Td dataLabel={words.task} className="vk-name">
        {vm === undefined ? task.verbose_name : <Link to={`/vms/${vm}`}>{task.verbose_name}</Link>}
        {task.is_multitask && (
          <div>
            <Link to={`/tasks?parent=${task.id}`} aria-label={`${words.parts}: ${task.verbose_name}`}>
              {words.parts}
            </Link>
          </div>
        )}
      </Td>
      <Td dataLabel={words.progress}>
        <TaskProgress task={task} />
      </Td>
      <Td dataLabel={words.started}>{format.time(task.created)}</Td>
      <Td dataLabel={words.took}>{isOver(task) ? words.seconds(task.executed) : texts.none}</Td>
      <Td dataLabel={words.user}>{task.user.username}</Td>
      <Td isActionCell>
        <Cancel task={task} />
      </Td>
    </Tr>
  );
}

function Cancel({ task: told }: { task: Task }) {
  const { texts } = useWords();
  const asked = useAsked();
  const { attempt } = useToasts();
  const task = useTask(told);
  if (isOver(task)) return null;
  const reason = cancelReason(task, asked);
  const act = () =>
    attempt(() =>
      answer(api.PUT('/api/tasks/{id}/cancel/', { params: { path: { id: task.id } }, body: {} })),
    );
  return <ActionButton size="sm" action={{ key: 'cancel', label: texts.tasks.cancel, reason, act }} />;
}

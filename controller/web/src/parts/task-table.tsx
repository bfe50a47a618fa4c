/** Tasks, each with its log and, under a task of many parts, with its parts: a tree that is opened level by level. */
import { Button } from '@patternfly/react-core';
import AngleDownIcon from '@patternfly/react-icons/dist/esm/icons/angle-down-icon';
import AngleRightIcon from '@patternfly/react-icons/dist/esm/icons/angle-right-icon';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { Link } from 'react-router';
import { answer, api, list, type Task } from '../api/client.ts';
import { isOver, useTaskState } from '../live/tasks.ts';
import { useWords } from '../texts/index.tsx';
import { ActionButton } from './actions.tsx';
import { cancelReason } from './reasons.ts';
import { Shown } from './shown.tsx';
import { TaskLog } from './task-log.tsx';
import { TaskProgress } from './task-progress.tsx';
import { useToasts } from './toasts.tsx';
import { useAsked } from './use-asked.ts';

const COLUMNS = 6;
const MOST_PARTS = 100;
/** Deeper ones are no further to the right: on a phone there is no room. */
const DEEPEST = 3;

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
          <Branch key={task.id} task={task} level={0} />
        ))}
      </Tbody>
    </Table>
  );
}

interface BranchProps {
  task: Task;
  /** 0: of no other task. */
  level: number;
  /** The name of the task that it is a part of. */
  parent?: string;
}

function Branch({ task, level, parent }: BranchProps) {
  const [isOpen, setOpen] = useState(false);
  const indent = `vk-level-${Math.min(level, DEEPEST)}`;
  return (
    <>
      <Row task={task} indent={indent} parent={parent} isOpen={isOpen} turn={() => setOpen(!isOpen)} />
      {isOpen && (
        <Tr>
          <Td colSpan={COLUMNS}>
            <div className={indent}>
              <TaskLog task={task} />
            </div>
          </Td>
        </Tr>
      )}
      {isOpen && task.is_multitask && <Parts task={task} level={level + 1} />}
    </>
  );
}

function Parts({ task, level }: { task: Task; level: number }) {
  const { texts } = useWords();
  const parts = { parent: task.id, ordering: 'verbose_name', limit: MOST_PARTS };
  const query = useQuery({
    queryKey: ['tasks', 'parts', task.id],
    queryFn: () => list<Task>(api.GET('/api/tasks/', { params: { query: parts } })),
  });
  const { data } = query;
  const rest = data !== undefined && data.count > data.results.length;
  return (
    <>
      {data?.results.map(part => (
        <Branch key={part.id} task={part} level={level} parent={task.verbose_name} />
      ))}
      {(data === undefined || query.isError || rest || data.count === 0) && (
        <Tr>
          <Td colSpan={COLUMNS}>
            <Shown query={query}>
              {({ count }) =>
                rest ? (
                  <Link to={`/tasks?parent=${task.id}`}>{texts.overview.more(count)}</Link>
                ) : (
                  count === 0 && <span className="vk-small">{texts.tasks.noParts}</span>
                )
              }
            </Shown>
          </Td>
        </Tr>
      )}
    </>
  );
}

interface RowProps {
  task: Task;
  indent: string;
  parent: string | undefined;
  isOpen: boolean;
  turn: () => void;
}

function Row({ task, indent, parent, isOpen, turn }: RowProps) {
  const { texts, format } = useWords();
  const words = texts.tasks;
  const vm = Object.entries(task.entities).find(([, kind]) => kind === 'domain')?.[0];
  return (
    <Tr>
      {/* without a label it has the width of a phone */}
      <Td>
        <div className={`vk-branch ${indent}`}>
          <Button
            variant="plain"
            size="sm"
            icon={isOpen ? <AngleDownIcon /> : <AngleRightIcon />}
            aria-label={(task.is_multitask ? words.partsOf : words.detailsOf)(task.verbose_name)}
            aria-expanded={isOpen}
            onClick={turn}
          />
          <div className="vk-name">
            {vm === undefined || task.is_multitask ? (
              task.verbose_name
            ) : (
              <Link to={`/vms/${vm}`}>{task.verbose_name}</Link>
            )}
            {parent !== undefined && <div className="vk-small">{words.partOf(parent)}</div>}
          </div>
        </div>
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
  const task = useTaskState(told);
  if (isOver(task)) return null;
  const reason = cancelReason(task, asked);
  const act = () =>
    attempt(() =>
      answer(api.PUT('/api/tasks/{id}/cancel/', { params: { path: { id: task.id } }, body: {} })),
    );
  return (
    <ActionButton
      size="sm"
      name={texts.tasks.cancelOf(task.verbose_name)}
      action={{ key: 'cancel', label: texts.tasks.cancel, reason, act }}
    />
  );
}

import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { Link } from 'react-router';
import { api, list, type Schemas } from '../../api/client.ts';
import { StatusLabel } from '../../parts/labels.tsx';
import { Empty, ListBar, useList } from '../../parts/list.tsx';
import { Shown } from '../../parts/shown.tsx';
import { useWords } from '../../texts/index.tsx';

type Run = Schemas['ScheduledRun'];

/** The history of a scheduled task, the newest run first; each with what became of its parts. */
export function Runs({ id }: { id: string }) {
  const { texts } = useWords();
  const state = useList();
  const { name: _none, ...page } = state.query;
  const query = useQuery({
    queryKey: ['schedules', 'runs', id, page],
    queryFn: () =>
      list<Run>(api.GET('/api/scheduled-tasks/{id}/runs/', { params: { path: { id }, query: page } })),
    placeholderData: keepPreviousData,
  });
  return (
    <>
      <ListBar list={state} count={query.data?.count} hasSearch={false} />
      <Shown query={query}>
        {({ results }) =>
          results.length === 0 ? <Empty title={texts.schedules.noRunsYet} /> : <RunTable runs={results} />
        }
      </Shown>
    </>
  );
}

function RunTable({ runs }: { runs: readonly Run[] }) {
  const { texts, format } = useWords();
  const words = texts.schedules;
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  const turn = (id: string) => {
    const next = new Set(opened);
    if (!next.delete(id)) next.add(id);
    setOpened(next);
  };
  return (
    <Table aria-label={words.runs} variant="compact" gridBreakPoint="grid-lg">
      <Thead>
        <Tr>
          <Th screenReaderText={texts.tasks.parts} />
          <Th modifier="wrap">{texts.tasks.started}</Th>
          <Th modifier="wrap">{words.due}</Th>
          <Th modifier="wrap">{texts.common.status}</Th>
          <Th modifier="wrap">{words.outcome}</Th>
          <Th modifier="wrap">{words.ended}</Th>
        </Tr>
      </Thead>
      {runs.map((run, rowIndex) => {
        const isExpanded = opened.has(run.id);
        return (
          <Tbody key={run.id} isExpanded={isExpanded}>
            <Tr isContentExpanded={isExpanded}>
              <Td
                {...(run.parts.length === 0
                  ? {}
                  : {
                      expand: {
                        rowIndex,
                        isExpanded,
                        onToggle: () => turn(run.id),
                        expandId: 'parts-of-run',
                      },
                    })}
                aria-label={texts.tasks.parts}
              />
              <Td dataLabel={texts.tasks.started}>{format.time(run.created)}</Td>
              <Td dataLabel={words.due}>
                {run.due_time === null ? words.onRequest : format.time(run.due_time)}
              </Td>
              <Td dataLabel={texts.common.status}>
                <StatusLabel status={run.status} />
                {run.reason !== '' && <div className="vk-small">{run.reason}</div>}
              </Td>
              <Td dataLabel={words.outcome}>{outcomeOf(run, texts.status)}</Td>
              <Td dataLabel={words.ended}>
                {run.finished === null ? texts.none : format.time(run.finished)}
              </Td>
            </Tr>
            {isExpanded && (
              <Tr isExpanded>
                <Td />
                <Td colSpan={5}>
                  <Parts run={run} />
                </Td>
              </Tr>
            )}
          </Tbody>
        );
      })}
    </Table>
  );
}

/** `2 done, 1 failed` */
function outcomeOf({ parts }: Run, words: Record<string, string>): string {
  const counts = new Map<string, number>();
  for (const { status } of parts) counts.set(status, (counts.get(status) ?? 0) + 1);
  return [...counts]
    .map(([status, count]) => `${count} ${(words[status] ?? status).toLowerCase()}`)
    .join(', ');
}

function Parts({ run }: { run: Run }) {
  const { texts, format } = useWords();
  const words = texts.schedules;
  return (
    <ul className="vk-list vk-points">
      {run.parts.map(part => (
        <li key={part.entity}>
          <span className="vk-row">
            {part.entity_class === 'domain' ? (
              <Link to={`/vms/${part.entity}`} className="vk-name">
                {part.verbose_name}
              </Link>
            ) : (
              <span className="vk-name">{part.verbose_name}</span>
            )}
            <StatusLabel status={part.status} />
            <span className="vk-small">
              {[
                part.mode === '' ? '' : words.modes[part.mode],
                part.bytes === null ? '' : format.size(part.bytes),
              ]
                .filter(Boolean)
                .join(' · ')}
            </span>
          </span>
          {part.error !== null && <div className="vk-small">{part.error.detail}</div>}
          {part.notes.map(note => (
            <div key={note} className="vk-small">
              {note}
            </div>
          ))}
        </li>
      ))}
      {run.task !== null && (
        <li>
          <Link to={`/tasks?parent=${run.task}`}>{texts.tasks.title}</Link>
        </li>
      )}
    </ul>
  );
}

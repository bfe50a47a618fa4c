import { Title } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { useQuery } from '@tanstack/react-query';
import { api, list, type Schemas } from '../../api/client.ts';
import { Failure } from '../../parts/shown.tsx';
import { useWords } from '../../texts/index.tsx';

const MOST = 50;

/** What waits for its turn; nothing while nothing does. */
export function Queue() {
  const { texts } = useWords();
  const words = texts.schedules;
  const query = useQuery({
    // what waits changes with the tasks
    queryKey: ['tasks', 'queue'],
    queryFn: () =>
      list<Schemas['QueuedPart']>(
        api.GET('/api/scheduled-tasks/queue/', { params: { query: { limit: MOST } } }),
      ),
  });
  if (query.isError) return <Failure error={query.error} again={() => void query.refetch()} />;
  if (query.data === undefined || query.data.count === 0) return null;
  return (
    <>
      <Title headingLevel="h2" className="vk-block">
        {words.queue(query.data.count)}
      </Title>
      <Table aria-label={words.queue(query.data.count)} variant="compact">
        <Thead>
          <Tr>
            <Th modifier="wrap">{words.position}</Th>
            <Th modifier="wrap">{words.schedule}</Th>
            <Th modifier="wrap">{texts.common.name}</Th>
            <Th modifier="wrap">{words.waitsFor}</Th>
          </Tr>
        </Thead>
        <Tbody>
          {query.data.results.map(({ position, run, scheduled_task, entity, reason }) => (
            <Tr key={`${run} ${entity.id}`}>
              <Td dataLabel={words.position}>{position}</Td>
              <Td dataLabel={words.schedule} className="vk-name">
                {scheduled_task.verbose_name}
              </Td>
              <Td dataLabel={texts.common.name} className="vk-name">
                {entity.verbose_name}
              </Td>
              <Td dataLabel={words.waitsFor}>{words.waits[reason]}</Td>
            </Tr>
          ))}
        </Tbody>
      </Table>
    </>
  );
}

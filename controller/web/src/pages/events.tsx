import { Label } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { Link } from 'react-router';
import { api, type EventRecord, list } from '../api/client.ts';
import { timeZone } from '../format.ts';
import { Empty, Filter, ListBar, useList } from '../parts/list.tsx';
import { ViewPage } from '../parts/page.tsx';
import { Shown } from '../parts/shown.tsx';
import { useWords } from '../texts/index.tsx';

const TYPES = ['info', 'warning', 'error'] as const;
const TONES = { info: 'info', warning: 'warning', error: 'danger' } as const;

export default function EventsPage() {
  const { texts } = useWords();
  const words = texts.events;
  const state = useList(['type']);
  const type = TYPES.find(value => value === state.filter('type'));
  const { name: _none, ...page } = state.query;
  const filters = { ...page, ...(type ? { type } : {}) };
  const query = useQuery({
    queryKey: ['events', filters],
    queryFn: () => list<EventRecord>(api.GET('/api/events/', { params: { query: filters } })),
    placeholderData: keepPreviousData,
  });
  return (
    <ViewPage title={words.title} about={texts.common.times(timeZone())}>
      <ListBar list={state} count={query.data?.count} hasSearch={false}>
        <Filter list={state} name="type" label={words.type} options={words.types} />
      </ListBar>
      <Shown query={query}>
        {({ results }) =>
          results.length === 0 ? <Empty list={state} title={words.empty} /> : <EventTable events={results} />
        }
      </Shown>
    </ViewPage>
  );
}

export function EventTable({ events }: { events: readonly EventRecord[] }) {
  const { texts, format } = useWords();
  const words = texts.events;
  return (
    <Table aria-label={words.title} variant="compact">
      <Thead>
        <Tr>
          <Th modifier="wrap">{words.time}</Th>
          <Th modifier="wrap">{words.type}</Th>
          <Th modifier="wrap">{words.message}</Th>
          <Th modifier="wrap">{words.user}</Th>
        </Tr>
      </Thead>
      <Tbody>
        {events.map(event => (
          <Tr key={event.id}>
            <Td dataLabel={words.time}>{format.time(event.created)}</Td>
            <Td dataLabel={words.type}>
              <Label isCompact variant="outline" status={TONES[event.type]}>
                {words.types[event.type]}
              </Label>
            </Td>
            <Td dataLabel={words.message} className="vk-name">
              <Message event={event} />
            </Td>
            <Td dataLabel={words.user}>{event.user}</Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}

function Message({ event }: { event: EventRecord }) {
  const vm = event.entities.find(({ entity_class }) => entity_class === 'domain')?.entity_uuid;
  return (
    <>
      {vm === undefined ? event.message : <Link to={`/vms/${vm}`}>{event.message}</Link>}
      {event.detail_message !== '' && <div className="vk-small">{event.detail_message}</div>}
    </>
  );
}

import { Label } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { keepPreviousData, useQuery, useQueryClient } from '@tanstack/react-query';
import { answer, api, list, type NotificationRecord, SELDOM } from '../../api/client.ts';
import { ActionMenu } from '../../parts/actions.tsx';
import { Empty, Filter, ListBar, useList } from '../../parts/list.tsx';
import { Shown } from '../../parts/shown.tsx';
import { useToasts } from '../../parts/toasts.tsx';
import { useWords } from '../../texts/index.tsx';

const STATUSES = ['pending', 'sent', 'dead'] as const;
const TONES = { pending: 'info', sent: 'success', dead: 'danger' } as const;

/** What was to be told, and what became of it. */
export function Outbox() {
  const { texts } = useWords();
  const words = texts.notifications;
  const state = useList(['status']);
  const status = STATUSES.find(value => value === state.filter('status'));
  const { name: _none, ...page } = state.query;
  const filters = { ...page, ...(status ? { status } : {}) };
  const query = useQuery({
    queryKey: ['notifications', filters],
    queryFn: () => list<NotificationRecord>(api.GET('/api/notifications/', { params: { query: filters } })),
    placeholderData: keepPreviousData,
    ...SELDOM,
  });
  return (
    <>
      <ListBar list={state} count={query.data?.count} hasSearch={false}>
        <Filter list={state} name="status" label={texts.common.status} options={words.statuses} />
      </ListBar>
      <Shown query={query}>
        {({ results }) =>
          results.length === 0 ? (
            <Empty list={state} title={words.nothingSent} />
          ) : (
            <OutboxTable records={results} />
          )
        }
      </Shown>
    </>
  );
}

function OutboxTable({ records }: { records: readonly NotificationRecord[] }) {
  const { texts, format } = useWords();
  const words = texts.notifications;
  return (
    <Table aria-label={words.sent} variant="compact" gridBreakPoint="grid-lg">
      <Thead>
        <Tr>
          <Th modifier="wrap">{texts.common.created}</Th>
          <Th modifier="wrap">{words.event}</Th>
          <Th modifier="wrap">{words.target}</Th>
          <Th modifier="wrap">{texts.common.status}</Th>
          <Th modifier="wrap">{words.attempts}</Th>
          <Th screenReaderText={texts.list.actions} />
        </Tr>
      </Thead>
      <Tbody>
        {records.map(record => (
          <Tr key={record.id}>
            <Td dataLabel={texts.common.created}>{format.time(record.created)}</Td>
            <Td dataLabel={words.event}>{words.eventNames[record.event]}</Td>
            <Td dataLabel={words.target} className="vk-name">
              {record.target.verbose_name}
            </Td>
            <Td dataLabel={texts.common.status}>
              <Label isCompact variant="outline" status={TONES[record.status]}>
                {words.statuses[record.status]}
              </Label>
              {record.reason !== '' && <div className="vk-small">{record.reason}</div>}
            </Td>
            <Td dataLabel={words.attempts}>
              {record.attempts}
              {record.next_attempt !== null && (
                <div className="vk-small">{words.nextAttempt(format.age(record.next_attempt))}</div>
              )}
            </Td>
            <Td isActionCell>
              <OutboxMenu record={record} />
            </Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}

function OutboxMenu({ record }: { record: NotificationRecord }) {
  const { texts } = useWords();
  const words = texts.notifications;
  const client = useQueryClient();
  const { attempt } = useToasts();
  const params = { path: { id: record.id } };
  const done = async (call: Promise<unknown>) => {
    await call;
    await client.invalidateQueries({ queryKey: ['notifications'] });
  };
  const retry = () => done(answer(api.POST('/api/notifications/{id}/retry/', { params, body: {} })));
  const forget = () => done(answer(api.POST('/api/notifications/{id}/remove/', { params, body: {} })));
  const reason = record.permissions.includes('retry') ? undefined : words.statuses.sent;
  return (
    <ActionMenu
      of={`${words.eventNames[record.event]}, ${record.target.verbose_name}`}
      actions={[
        { key: 'retry', label: texts.errors.retry, reason, act: () => attempt(retry) },
        { key: 'remove', label: words.forget, act: () => attempt(forget) },
      ]}
    />
  );
}

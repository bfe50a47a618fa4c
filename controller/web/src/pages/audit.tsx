/** Who changed what, and who was refused. */
import { TextInput, ToolbarItem } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { useCallback } from 'react';
import { Link } from 'react-router';
import { type AuditRecord, api, list, SELDOM } from '../api/client.ts';
import { timeZone } from '../format.ts';
import { serverNow } from '../live/server-time.ts';
import { Empty, Filter, ListBar, type ListState, useList } from '../parts/list.tsx';
import { ViewPage } from '../parts/page.tsx';
import { rightReason } from '../parts/reasons.ts';
import { Shown } from '../parts/shown.tsx';
import { useAsked } from '../parts/use-asked.ts';
import { useTyped } from '../parts/use-settled.ts';
import { useWords } from '../texts/index.tsx';

const TYPING_MS = 300;
const OUTCOMES = ['done', 'refused'] as const;
const DAYS = ['1', '7', '30'] as const;
const DAY_MS = 86_400_000;
const REFUSED = 400;

export default function AuditPage() {
  const { texts } = useWords();
  const words = texts.audit;
  const reason = rightReason('audit.read', useAsked());
  const state = useList(['user', 'entity', 'outcome', 'days']);
  const [user, entity] = [state.filter('user'), state.filter('entity')];
  const outcome = OUTCOMES.find(value => value === state.filter('outcome'));
  const days = DAYS.find(value => value === state.filter('days'));
  const filters = {
    ...state.query,
    ...(user ? { user } : {}),
    ...(entity ? { entity } : {}),
    ...(outcome ? { outcome } : {}),
  };
  const query = useQuery({
    queryKey: ['audit', filters, days],
    queryFn: () => {
      const since = days && { since: new Date(serverNow() - Number(days) * DAY_MS).toISOString() };
      return list<AuditRecord>(api.GET('/api/audit/', { params: { query: { ...filters, ...since } } }));
    },
    placeholderData: keepPreviousData,
    enabled: reason === undefined,
    ...SELDOM,
  });
  const outcomes = { done: words.done, refused: words.refused };
  const spans = Object.fromEntries(DAYS.map(value => [value, words.lastDays(Number(value))]));
  if (reason !== undefined)
    return (
      <ViewPage title={words.title}>
        <Empty title={reason} />
      </ViewPage>
    );
  return (
    <ViewPage title={words.title} about={texts.common.times(timeZone())}>
      <ListBar list={state} count={query.data?.count}>
        <ToolbarItem>
          <UserFilter list={state} />
        </ToolbarItem>
        <Filter list={state} name="outcome" label={words.outcome} options={outcomes} />
        <Filter list={state} name="days" label={texts.events.time} options={spans} />
      </ListBar>
      <Shown query={query}>
        {({ results }) =>
          results.length === 0 ? <Empty list={state} title={words.empty} /> : <AuditTable records={results} />
        }
      </Shown>
    </ViewPage>
  );
}

function UserFilter({ list: state }: { list: ListState }) {
  const { texts } = useWords();
  const present = state.filter('user');
  const set = useCallback((user: string) => state.set({ user }), [state]);
  const [typed, setTyped] = useTyped(present, set, TYPING_MS);
  return (
    <TextInput
      aria-label={texts.users.username}
      placeholder={texts.users.username}
      value={typed}
      onChange={(_event, value) => setTyped(value)}
    />
  );
}

function AuditTable({ records }: { records: readonly AuditRecord[] }) {
  const { texts, format } = useWords();
  const words = texts.audit;
  return (
    <Table aria-label={words.title} variant="compact" gridBreakPoint="grid-lg">
      <Thead>
        <Tr>
          <Th modifier="wrap">{texts.events.time}</Th>
          <Th modifier="wrap">{texts.events.user}</Th>
          <Th modifier="wrap">{words.action}</Th>
          <Th modifier="wrap">{words.outcome}</Th>
          <Th modifier="wrap">{texts.common.details}</Th>
        </Tr>
      </Thead>
      <Tbody>
        {records.map(record => (
          <Tr key={record.id}>
            <Td dataLabel={texts.events.time}>
              {format.time(record.created)}
              {record.count > 1 && <div className="vk-small">{words.repeated(record.count)}</div>}
            </Td>
            <Td dataLabel={texts.events.user}>
              {record.user.username}
              <div className="vk-small">{record.address}</div>
            </Td>
            <Td dataLabel={words.action} className="vk-name">
              {record.action}
              {record.entity !== null && (
                <div className="vk-small">
                  <Link to={`/audit?entity=${record.entity}`} aria-label={words.allOf(record.entity)}>
                    {record.entity}
                  </Link>
                </div>
              )}
            </Td>
            <Td dataLabel={words.outcome}>
              {record.status < REFUSED ? words.done : words.refused}
              <div className="vk-small">
                {record.status} {record.error}
              </div>
            </Td>
            <Td dataLabel={texts.common.details}>
              <Request record={record} />
            </Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}

function Request({ record }: { record: AuditRecord }) {
  const { texts } = useWords();
  if (record.request === null || Object.keys(record.request as object).length === 0) return texts.none;
  return (
    <details>
      <summary>{texts.audit.request}</summary>
      <pre className="vk-json">{JSON.stringify(record.request, null, 1)}</pre>
    </details>
  );
}

import { Flex, Label } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { Link } from 'react-router';
import { api, list, type Schedule } from '../../api/client.ts';
import { timeZone } from '../../format.ts';
import { ActionButton, ActionMenu } from '../../parts/actions.tsx';
import { StatusLabel } from '../../parts/labels.tsx';
import { Empty, ListBar, useList } from '../../parts/list.tsx';
import { ViewPage } from '../../parts/page.tsx';
import { rightReason } from '../../parts/reasons.ts';
import { Shown } from '../../parts/shown.tsx';
import { useAsked } from '../../parts/use-asked.ts';
import type { Texts } from '../../texts/en.ts';
import { useWords } from '../../texts/index.tsx';
import { useScheduleActions } from './actions.tsx';
import { Queue } from './queue.tsx';

export default function SchedulesPage() {
  const { texts } = useWords();
  const words = texts.schedules;
  const state = useList();
  const query = useQuery({
    queryKey: ['schedules', state.query],
    queryFn: () => list<Schedule>(api.GET('/api/scheduled-tasks/', { params: { query: state.query } })),
    placeholderData: keepPreviousData,
  });
  const reason = rightReason('schedule.manage', useAsked());
  const make = { key: 'make', label: words.make, reason, to: '/schedules/new' };
  return (
    <ViewPage
      title={words.title}
      about={texts.common.times(timeZone())}
      actions={
        <Flex gap={{ default: 'gapSm' }}>
          <ActionButton variant="primary" action={make} />
          <ActionButton action={{ key: 'calendar', label: words.calendar, to: '/schedules/calendar' }} />
        </Flex>
      }
    >
      <ListBar list={state} count={query.data?.count} />
      <Shown query={query}>
        {({ results }) =>
          results.length === 0 ? (
            <Empty list={state} title={words.empty} text={words.emptyText}>
              {reason === undefined && <Link to="/schedules/new">{words.make}</Link>}
            </Empty>
          ) : (
            <ScheduleTable schedules={results} />
          )
        }
      </Shown>
      <Queue />
    </ViewPage>
  );
}

/** What it is for, in words. */
export function targetsOf({ all, entities, tags, nodes }: Schedule, { schedules: words }: Texts): string {
  const parts = [
    all ? words.all : '',
    entities.length > 0 ? words.machines(entities.length) : '',
    tags.length > 0 ? words.byTags(tags.length) : '',
    nodes.length > 0 ? words.onNodes(nodes.length) : '',
  ];
  return parts.filter(part => part !== '').join(', ');
}

function ScheduleTable({ schedules }: { schedules: readonly Schedule[] }) {
  const { texts, format } = useWords();
  const words = texts.schedules;
  return (
    <Table aria-label={words.title} variant="compact" gridBreakPoint="grid-lg">
      <Thead>
        <Tr>
          <Th modifier="wrap">{texts.common.name}</Th>
          <Th modifier="wrap">{words.action}</Th>
          <Th modifier="wrap">{words.targets}</Th>
          <Th modifier="wrap">{words.periodicity}</Th>
          <Th modifier="wrap">{words.next}</Th>
          <Th modifier="wrap">{words.last}</Th>
          <Th screenReaderText={texts.list.actions} />
        </Tr>
      </Thead>
      <Tbody>
        {schedules.map(schedule => (
          <Tr key={schedule.id}>
            <Td dataLabel={texts.common.name} className="vk-name">
              <Link to={`/schedules/${schedule.id}`}>{schedule.verbose_name}</Link>
              {schedule.description !== '' && <div className="vk-small">{schedule.description}</div>}
              {schedule.warnings.map(warning => (
                <div key={warning} className="vk-small">
                  {words.warnings}: {warning}
                </div>
              ))}
            </Td>
            <Td dataLabel={words.action}>{words.actions[schedule.action] ?? schedule.action}</Td>
            <Td dataLabel={words.targets}>{targetsOf(schedule, texts)}</Td>
            <Td dataLabel={words.periodicity}>
              {words.periods[schedule.periodicity] ?? schedule.periodicity} {schedule.cron}
            </Td>
            <Td dataLabel={words.next}>
              {schedule.enabled ? (
                <>
                  {format.time(schedule.next_run)}
                  <div className="vk-small">{format.age(schedule.next_run)}</div>
                </>
              ) : (
                <Label isCompact>{words.disabled}</Label>
              )}
            </Td>
            <Td dataLabel={words.last}>
              {schedule.last_run ? (
                <span className="vk-row">
                  <StatusLabel status={schedule.last_run.status} />
                  <span className="vk-small">{format.age(schedule.last_run.created)}</span>
                </span>
              ) : (
                texts.never
              )}
            </Td>
            <Td isActionCell>
              <ScheduleMenu schedule={schedule} />
            </Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}

function ScheduleMenu({ schedule }: { schedule: Schedule }) {
  const { actions, dialog } = useScheduleActions(schedule);
  return (
    <>
      <ActionMenu of={schedule.verbose_name} actions={actions} />
      {dialog}
    </>
  );
}

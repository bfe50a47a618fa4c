/** One scheduled task: what it will do, which of its backups go, and its history. */
import {
  DescriptionList,
  DescriptionListDescription,
  DescriptionListGroup,
  DescriptionListTerm,
  Flex,
  Label,
} from '@patternfly/react-core';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { useNavigate, useParams } from 'react-router';
import { answer, api, list, type Schedule, type Schemas } from '../../api/client.ts';
import { timeZone } from '../../format.ts';
import { ActionButton, ActionMenu } from '../../parts/actions.tsx';
import { ViewPage } from '../../parts/page.tsx';
import { PageTabs } from '../../parts/page-tabs.tsx';
import { Failure, Shown } from '../../parts/shown.tsx';
import { useWords } from '../../texts/index.tsx';
import { useScheduleActions } from './actions.tsx';
import { targetsOf } from './list.tsx';
import { GOING_FIRST, PreviewTables, Verdicts } from './preview.tsx';
import { Runs } from './runs.tsx';

const MOST = 500;

export default function SchedulePage() {
  const { texts } = useWords();
  const { id = '', tab } = useParams();
  const query = useQuery({
    queryKey: ['schedules', 'one', id],
    queryFn: () => answer(api.GET('/api/scheduled-tasks/{id}/', { params: { path: { id } } })),
  });
  if (query.data === undefined)
    return (
      <ViewPage title={texts.schedules.title}>
        <Shown query={query}>{() => null}</Shown>
      </ViewPage>
    );
  const failure = query.isError && <Failure error={query.error} again={() => void query.refetch()} />;
  return <OneSchedule key={id} schedule={query.data} tab={tab} failure={failure} />;
}

interface OneScheduleProps {
  schedule: Schedule;
  tab: string | undefined;
  failure: ReactNode;
}

function OneSchedule({ schedule, tab, failure }: OneScheduleProps) {
  const { texts } = useWords();
  const words = texts.schedules;
  const navigate = useNavigate();
  const { id, verbose_name: name } = schedule;
  const { actions, dialog } = useScheduleActions(schedule, () => void navigate('/schedules'));
  const [run, change, ...others] = actions;
  return (
    <ViewPage
      title={name}
      about={texts.common.times(timeZone())}
      actions={
        <Flex gap={{ default: 'gapSm' }}>
          {run && <ActionButton variant="primary" action={run} />}
          {change && <ActionButton action={change} />}
          <ActionMenu of={name} actions={others} />
          {dialog}
        </Flex>
      }
    >
      {failure}
      <Facts schedule={schedule} />
      <PageTabs
        label={name}
        at={`/schedules/${id}`}
        active={tab}
        tabs={[
          { key: 'next', title: words.nextRuns, content: () => <Next id={id} /> },
          { key: 'retention', title: words.retention, content: () => <Retention id={id} /> },
          { key: 'runs', title: words.runs, content: () => <Runs id={id} /> },
        ]}
      />
    </ViewPage>
  );
}

function Facts({ schedule }: { schedule: Schedule }) {
  const { texts, format } = useWords();
  const words = texts.schedules;
  const next = schedule.enabled ? (
    `${format.time(schedule.next_run)}, ${format.age(schedule.next_run)}`
  ) : (
    <Label isCompact>{words.disabled}</Label>
  );
  const facts: [string, ReactNode][] = [
    [words.action, words.actions[schedule.action] ?? schedule.action],
    [words.targets, targetsOf(schedule, texts)],
    [words.periodicity, `${words.periods[schedule.periodicity] ?? schedule.periodicity} ${schedule.cron}`],
    [words.zone, schedule.time_zone],
    [words.next, next],
    [words.madeBy, schedule.user],
  ];
  return (
    <DescriptionList columnModifier={{ default: '1Col', md: '3Col' }} className="vk-block">
      {schedule.description !== '' && (
        <DescriptionListGroup>
          <DescriptionListTerm>{texts.common.description}</DescriptionListTerm>
          <DescriptionListDescription>{schedule.description}</DescriptionListDescription>
        </DescriptionListGroup>
      )}
      {facts.map(([term, fact]) => (
        <DescriptionListGroup key={term}>
          <DescriptionListTerm>{term}</DescriptionListTerm>
          <DescriptionListDescription>{fact}</DescriptionListDescription>
        </DescriptionListGroup>
      ))}
    </DescriptionList>
  );
}

function Next({ id }: { id: string }) {
  const query = useQuery({
    queryKey: ['schedules', 'preview', id],
    queryFn: () => answer(api.GET('/api/scheduled-tasks/{id}/preview/', { params: { path: { id } } })),
    placeholderData: keepPreviousData,
  });
  return <Shown query={query}>{preview => <PreviewTables preview={preview} />}</Shown>;
}

function Retention({ id }: { id: string }) {
  const query = useQuery({
    // what files there are decides it
    queryKey: ['files', 'retention', id],
    queryFn: () =>
      list<Schemas['RetentionVerdict']>(
        api.GET('/api/scheduled-tasks/{id}/retention-preview/', {
          params: { path: { id }, query: { limit: MOST, ordering: GOING_FIRST } },
        }),
      ),
  });
  return <Shown query={query}>{({ results, count }) => <Verdicts verdicts={results} count={count} />}</Shown>;
}

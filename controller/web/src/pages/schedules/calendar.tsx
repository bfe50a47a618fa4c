/** What all scheduled tasks did and will do, by days. */
import { Button, Flex, Title, ToggleGroup, ToggleGroupItem } from '@patternfly/react-core';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { Link, useSearchParams } from 'react-router';
import { api, list, type Schemas } from '../../api/client.ts';
import { timeZone } from '../../format.ts';
import { serverNow } from '../../live/server-time.ts';
import { ActionButton } from '../../parts/actions.tsx';
import { StatusLabel } from '../../parts/labels.tsx';
import { ViewPage } from '../../parts/page.tsx';
import { Shown } from '../../parts/shown.tsx';
import { useWords } from '../../texts/index.tsx';
import { type Day, dateOf, dayOf, daysOf, moved, type View } from './days.ts';

type Occurrence = Schemas['ScheduleOccurrence'];

const VIEWS = ['month', 'week'] as const;
/** As many are asked for at once. */
const PAGE = 1000;
/** As many the controller tells of at most: the nearest to now. */
const MOST = 5000;
/** Of one day of a month; a week shows all. */
const MOST_OF_DAY = 4;

export default function CalendarPage() {
  const { texts, format } = useWords();
  const words = texts.schedules;
  const [params, setParams] = useSearchParams();
  const view: View = params.get('view') === 'week' ? 'week' : 'month';
  const today = new Date(serverNow());
  const day = dayOf(params.get('date') ?? '', today);
  const days = daysOf(view, day);
  const [first, last] = [days[0] as Day, days.at(-1) as Day];
  const span = { from: first.begins.toISOString(), to: last.ends.toISOString() };
  const query = useQuery({
    queryKey: ['schedules', 'calendar', span],
    queryFn: ({ signal }) => allOf(span, signal),
    placeholderData: keepPreviousData,
  });
  const show = (next: { view?: View; date?: Date }) =>
    setParams({ view: next.view ?? view, date: dateOf(next.date ?? day) }, { replace: true });
  const title = view === 'month' ? format.month(day) : format.days(first.begins, last.begins);
  return (
    <ViewPage
      title={words.calendar}
      about={texts.common.times(timeZone())}
      actions={<ActionButton action={{ key: 'list', label: words.title, to: '/schedules' }} />}
    >
      <Flex gap={{ default: 'gapSm' }} className="vk-block">
        <ToggleGroup aria-label={words.view}>
          {VIEWS.map(one => (
            <ToggleGroupItem
              key={one}
              text={words.views[one]}
              buttonId={`view-${one}`}
              isSelected={view === one}
              onChange={() => show({ view: one })}
            />
          ))}
        </ToggleGroup>
        <Button variant="secondary" onClick={() => show({ date: moved(view, day, -1) })}>
          {words.before}
        </Button>
        <Button variant="secondary" onClick={() => show({ date: today })}>
          {words.today}
        </Button>
        <Button variant="secondary" onClick={() => show({ date: moved(view, day, 1) })}>
          {words.after}
        </Button>
      </Flex>
      <Title headingLevel="h2" className="vk-block" aria-live="polite">
        {title}
      </Title>
      <Shown query={query}>
        {occurrences => (
          <>
            {occurrences.length >= MOST && <p className="vk-small">{words.nearestOnly(MOST)}</p>}
            <Days days={days} view={view} occurrences={occurrences} />
          </>
        )}
      </Shown>
    </ViewPage>
  );
}

async function allOf(span: { from: string; to: string }, signal: AbortSignal): Promise<Occurrence[]> {
  const all: Occurrence[] = [];
  for (;;) {
    const query = { ...span, limit: PAGE, offset: all.length };
    const { count, results } = await list<Occurrence>(
      api.GET('/api/scheduled-tasks/calendar/', { params: { query }, signal }),
    );
    all.push(...results);
    if (results.length === 0 || all.length >= Math.min(count, MOST)) return all;
  }
}

interface DaysProps {
  days: readonly Day[];
  view: View;
  occurrences: readonly Occurrence[];
}

function Days({ days, view, occurrences }: DaysProps) {
  const { texts } = useWords();
  return (
    <ol className={`vk-calendar vk-calendar-${view}`} aria-label={texts.schedules.calendar}>
      {days.map(day => {
        const [begins, ends] = [day.begins.toISOString(), day.ends.toISOString()];
        const own = occurrences.filter(({ time }) => time >= begins && time < ends);
        return <OneDay key={day.date} day={day} view={view} occurrences={own} />;
      })}
    </ol>
  );
}

function OneDay({ day, view, occurrences }: { day: Day; view: View; occurrences: readonly Occurrence[] }) {
  const { texts, format } = useWords();
  const words = texts.schedules;
  const shown = view === 'week' ? occurrences : occurrences.slice(0, MOST_OF_DAY);
  const isToday = day.date === dateOf(new Date(serverNow()));
  const classes = [
    'vk-calendar-day',
    day.isMeant ? '' : 'vk-calendar-other',
    occurrences.length === 0 ? 'vk-calendar-empty' : '',
  ].join(' ');
  return (
    <li className={classes} aria-current={isToday ? 'date' : undefined}>
      <time dateTime={day.date} className="vk-calendar-date">
        {format.weekdayAndDay(day.begins)}
      </time>
      <ul className="vk-calendar-runs">
        {shown.map(({ scheduled_task, time, run, status, mode }) => (
          <li key={`${scheduled_task.id} ${time}`}>
            <span className="vk-small">{format.clock(time)}</span>{' '}
            <Link to={`/schedules/${scheduled_task.id}${run === null ? '' : '/runs'}`} className="vk-name">
              {scheduled_task.verbose_name}
            </Link>{' '}
            {status !== null && <StatusLabel status={status} />}
            {mode === 'full' && <span className="vk-small">{words.modes.full}</span>}
          </li>
        ))}
        {occurrences.length > shown.length && (
          <li>
            <Link to={`/schedules/calendar?view=week&date=${day.date}`}>
              {words.moreOf(occurrences.length - shown.length, format.weekdayAndDay(day.begins))}
            </Link>
          </li>
        )}
      </ul>
    </li>
  );
}

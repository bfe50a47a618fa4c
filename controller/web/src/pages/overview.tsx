import {
  Card,
  CardBody,
  CardTitle,
  Gallery,
  Progress,
  ProgressMeasureLocation,
  ProgressSize,
} from '@patternfly/react-core';
import { useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { Link } from 'react-router';
import { answer, api, type Overview, type ProtectionState } from '../api/client.ts';
import { timeZone } from '../format.ts';
import { PoolForecast } from '../parts/forecast.tsx';
import { ProtectionLabel, StatusLabel } from '../parts/labels.tsx';
import { ViewPage } from '../parts/page.tsx';
import { Shown } from '../parts/shown.tsx';
import { TaskProgress } from '../parts/task-progress.tsx';
import { useWords } from '../texts/index.tsx';
import { FirstSteps } from './first-steps.tsx';

const STATES: readonly ProtectionState[] = ['late', 'never', 'failing', 'protected', 'excluded'];
const SIGNS = { none: '', good: '✓', mixed: '!', failed: '✕' };
/** Fuller than this a pool is told as short of room. */
const FULL_PERCENT = 90;

export default function OverviewPage() {
  const { texts } = useWords();
  const query = useQuery({
    queryKey: ['overview'],
    queryFn: () => answer(api.GET('/api/overview/', { params: { query: { time_zone: timeZone() } } })),
  });
  return (
    <ViewPage title={texts.overview.title} about={texts.common.times(timeZone())}>
      <Shown query={query}>{overview => <Everything overview={overview} />}</Shown>
    </ViewPage>
  );
}

function Everything({ overview }: { overview: Overview }) {
  return (
    <Gallery hasGutter minWidths={{ default: '100%', lg: '26rem' }}>
      <FirstSteps overview={overview} />
      <Counts overview={overview} />
      <Running overview={overview} />
      <Urgent overview={overview} />
      <Pools overview={overview} />
      <History overview={overview} />
      <Nodes overview={overview} />
      <NextRuns overview={overview} />
    </Gallery>
  );
}

interface PartProps {
  title: string;
  isWide?: boolean;
  children: ReactNode;
}

function Part({ title, isWide = false, children }: PartProps) {
  return (
    <Card className={isWide ? 'vk-wide' : ''}>
      <CardTitle component="h2">{title}</CardTitle>
      <CardBody>{children}</CardBody>
    </Card>
  );
}

function Counts({ overview }: { overview: Overview }) {
  const { texts, format } = useWords();
  return (
    <Part title={texts.overview.protection}>
      <div className="vk-counts">
        {STATES.map(state => (
          <div key={state}>
            <Link to={`/vms?protection=${state}`} className="vk-count">
              {format.number(overview.domains.counts[state])}
              <span className="pf-v6-screen-reader"> {texts.protection[state]}</span>
            </Link>
            <div aria-hidden="true">
              <ProtectionLabel state={state} />
            </div>
          </div>
        ))}
      </div>
    </Part>
  );
}

function Urgent({ overview }: { overview: Overview }) {
  const { texts, format } = useWords();
  const { urgent } = overview.domains;
  return (
    <Part title={texts.overview.urgent}>
      {urgent.length === 0 ? (
        texts.overview.allWell
      ) : (
        <ul className="vk-list">
          {urgent.map(({ domain, state, last_good, reason }) => (
            <li key={domain.id}>
              <div className="vk-row">
                <Link to={`/vms/${domain.id}`} className="vk-name">
                  {domain.verbose_name}
                </Link>
                <ProtectionLabel state={state} />
                <span className="vk-small">{texts.overview.lastGood(format.age(last_good))}</span>
              </div>
              <div className="vk-small">{reason}</div>
            </li>
          ))}
        </ul>
      )}
    </Part>
  );
}

function Running({ overview }: { overview: Overview }) {
  const { texts } = useWords();
  const { count, results } = overview.running;
  return (
    <Part title={texts.overview.running}>
      {results.length === 0 ? (
        texts.overview.nothingRuns
      ) : (
        <ul className="vk-list">
          {results.map(task => (
            <li key={task.id}>
              <span className="vk-name">{task.verbose_name}</span>
              <TaskProgress task={task} />
            </li>
          ))}
          {count > results.length && (
            <li>
              <Link to="/tasks?status=IN_PROGRESS">{texts.overview.more(count)}</Link>
            </li>
          )}
        </ul>
      )}
    </Part>
  );
}

function History({ overview }: { overview: Overview }) {
  const { texts, format } = useWords();
  const words = texts.overview;
  const { days, domains } = overview.history;
  return (
    <Part title={words.history} isWide>
      <p className="vk-small">{words.historyText}</p>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keyboard */}
      <section className="vk-scroll" aria-label={words.history} tabIndex={0}>
        <table className="vk-days">
          <thead>
            <tr>
              <td />
              {days.map(day => (
                <th key={day} scope="col">
                  {format.day(day)}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {domains.map(({ domain, results }) => (
              <tr key={domain.id}>
                <th scope="row">
                  <Link to={`/vms/${domain.id}`}>{domain.verbose_name}</Link>
                </th>
                {results.map((result, index) => (
                  <td key={days[index]} className={`vk-day vk-day-${result}`} title={words.day[result]}>
                    <span aria-hidden="true">{SIGNS[result]}</span>
                    <span className="pf-v6-screen-reader">{words.day[result]}</span>
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </Part>
  );
}

function Pools({ overview }: { overview: Overview }) {
  const { texts, format } = useWords();
  const { count, results } = overview.pools;
  return (
    <Part title={texts.overview.pools}>
      <ul className="vk-list">
        {results.map(({ id, verbose_name, status, size, used_space, free_space, forecast }) => {
          const percent = size === 0 ? 0 : Math.round((used_space / size) * 100);
          return (
            <li key={id}>
              {status === 'FAILED' && <StatusLabel status="AWAY" />}
              <Progress
                size={ProgressSize.sm}
                measureLocation={ProgressMeasureLocation.outside}
                title={`${verbose_name}: ${format.size(free_space)} ${texts.common.free}`}
                aria-label={verbose_name}
                value={percent}
                {...(percent > FULL_PERCENT ? { variant: 'danger' as const } : {})}
              />
              <PoolForecast forecast={forecast} />
            </li>
          );
        })}
        {count > results.length && (
          <li>
            <Link to="/pools">{texts.overview.more(count)}</Link>
          </li>
        )}
      </ul>
    </Part>
  );
}

function Nodes({ overview }: { overview: Overview }) {
  const { texts, format } = useWords();
  const { count, away_count, away } = overview.nodes;
  return (
    <Part title={texts.overview.nodes}>
      {away.length === 0 ? (
        texts.overview.nodesWell(count)
      ) : (
        <ul className="vk-list">
          {away.map(({ id, verbose_name, status, last_seen }) => (
            <li key={id} className="vk-row">
              <Link to="/nodes">{verbose_name}</Link>
              <StatusLabel status={status === 'FAILED' ? 'AWAY' : status} />
              <span className="vk-small">{texts.overview.lastSeen(format.age(last_seen))}</span>
            </li>
          ))}
          {away_count > away.length && (
            <li>
              <Link to="/nodes">{texts.overview.more(away_count)}</Link>
            </li>
          )}
        </ul>
      )}
    </Part>
  );
}

function NextRuns({ overview }: { overview: Overview }) {
  const { texts, format } = useWords();
  return (
    <Part title={texts.overview.next}>
      {overview.next_runs.length === 0 ? (
        texts.overview.noRuns
      ) : (
        <ul className="vk-list">
          {overview.next_runs.map(({ id, verbose_name, next_run }) => (
            <li key={id} className="vk-row">
              <Link to={`/schedules/${id}`}>{verbose_name}</Link>
              <span>{format.time(next_run)}</span>
              <span className="vk-small">{format.age(next_run)}</span>
            </li>
          ))}
        </ul>
      )}
    </Part>
  );
}

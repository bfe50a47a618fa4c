/** What a task did and what happened in it, as it goes. */
import { useQuery } from '@tanstack/react-query';
import { api, type EventRecord, list, type Task } from '../api/client.ts';
import { useTask } from '../live/tasks.ts';
import { useWords } from '../texts/index.tsx';
import { Shown } from './shown.tsx';

const MOST = 200;

interface Line {
  key: string;
  time: string;
  text: string;
  detail: string;
}

export function TaskLog({ task: told }: { task: Task }) {
  const { texts, format } = useWords();
  const task = useTask(told);
  const query = useQuery({
    queryKey: ['events', 'of task', task.id],
    queryFn: () =>
      list<EventRecord>(api.GET('/api/events/', { params: { query: { task: task.id, limit: MOST } } })),
  });
  const words = texts.tasks;
  return (
    <Shown query={query}>
      {({ results }) => {
        const lines = linesOf(task, results);
        return (
          // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keyboard
          <div role="log" aria-label={words.logOf(task.verbose_name)} tabIndex={0} className="vk-log">
            {lines.length === 0 && <p className="vk-small">{words.noLog}</p>}
            <ul className="vk-list">
              {lines.map(({ key, time, text, detail }) => (
                <li key={key}>
                  <span className="vk-small">{format.second(time)}</span> {text}
                  {detail !== '' && <div className="vk-small">{detail}</div>}
                </li>
              ))}
            </ul>
          </div>
        );
      }}
    </Shown>
  );
}

function linesOf({ detail, id }: Task, events: readonly EventRecord[]): Line[] {
  const steps = detail.steps.map(({ phase, message, since }, index) => ({
    key: `${id} ${since} ${index}`,
    time: since,
    text: phase,
    detail: message,
  }));
  const told = events.map(event => ({
    key: event.id,
    time: event.created,
    text: event.message,
    detail: event.detail_message,
  }));
  return [...steps, ...told].sort((a, b) => (a.time < b.time ? -1 : Number(a.time > b.time)));
}

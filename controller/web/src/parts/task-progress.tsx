import { Progress, ProgressSize } from '@patternfly/react-core';
import type { Task } from '../api/client.ts';
import { useTask } from '../live/tasks.ts';
import { useWords } from '../texts/index.tsx';
import { StatusLabel } from './labels.tsx';

/** How far a task is, as it goes; its outcome when it has one. */
export function TaskProgress({ task: told }: { task: Task }) {
  const { texts, format } = useWords();
  const task = useTask(told);
  if (task.status !== 'IN_PROGRESS') return <TaskOutcome task={task} />;
  const { phase, bytes_done, bytes_total, rate } = task.detail;
  const words = [
    phase,
    bytes_total > 0 ? `${format.size(bytes_done)} / ${format.size(bytes_total)}` : '',
    rate > 0 ? texts.tasks.rate(format.size(rate)) : '',
    rate > 0 && bytes_total > bytes_done
      ? texts.tasks.left(format.duration((bytes_total - bytes_done) / rate))
      : '',
  ];
  return (
    <Progress
      aria-label={texts.tasks.progressOf(task.verbose_name)}
      size={ProgressSize.sm}
      value={task.progress}
      title={words.filter(word => word !== '').join(' · ')}
      className="vk-progress"
    />
  );
}

function TaskOutcome({ task }: { task: Task }) {
  return (
    <>
      <StatusLabel status={task.status} />
      {task.error_message !== '' && <div className="vk-small">{task.error_message}</div>}
    </>
  );
}

import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { api, list, type Task } from '../api/client.ts';
import { timeZone } from '../format.ts';
import { Empty, Filter, ListBar, useList } from '../parts/list.tsx';
import { ViewPage } from '../parts/page.tsx';
import { Shown } from '../parts/shown.tsx';
import { TaskTable } from '../parts/task-table.tsx';
import { useWords } from '../texts/index.tsx';

const STATUSES = ['IN_PROGRESS', 'SUCCESS', 'FAILED', 'PARTIAL', 'CANCELED', 'LOST'] as const;

export default function TasksPage() {
  const { texts } = useWords();
  const state = useList(['status', 'parent']);
  const status = STATUSES.find(value => value === state.filter('status'));
  const parent = state.filter('parent');
  // parts stand under what they are parts of, unless something is looked for
  const filters = {
    ...state.query,
    ...(status ? { status } : {}),
    ...(parent ? { parent } : {}),
    ...(state.isFiltered ? {} : { is_part: 'false' as const }),
  };
  const query = useQuery({
    queryKey: ['tasks', filters],
    queryFn: () => list<Task>(api.GET('/api/tasks/', { params: { query: filters } })),
    placeholderData: keepPreviousData,
  });
  const options = Object.fromEntries(STATUSES.map(value => [value, texts.status[value] ?? value]));
  return (
    <ViewPage title={texts.tasks.title} about={texts.common.times(timeZone())}>
      <ListBar list={state} count={query.data?.count}>
        <Filter list={state} name="status" label={texts.common.status} options={options} />
      </ListBar>
      <Shown query={query}>
        {({ results }) =>
          results.length === 0 ? (
            <Empty list={state} title={texts.tasks.empty} />
          ) : (
            <TaskTable tasks={results} />
          )
        }
      </Shown>
    </ViewPage>
  );
}

/**
 * The main job with types that openapi-typescript makes of the API document (`./api.d.ts`, made beside a copy of this file by the
 * test): it compiles only when the document says enough.
 *
 * usage: generated-main-job.ts <url> <username> <password> <domain> <datapool>
 */
import createClient from 'openapi-fetch';
import type { components, paths } from './api.d.ts';

type Task = components['schemas']['Task'];

const POLL_MS = 20;

const [baseUrl = '', username = '', password = '', domain = '', datapool = ''] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl });

/** The answer of a call that must succeed. */
function answered<T>({ data, error }: { data?: T; error?: components['schemas']['Error'] }): T {
  if (data === undefined) throw new Error(error?.errors.map(one => one.msg_key).join(', ') ?? 'no answer');
  return data;
}

async function ended(accepted: components['schemas']['TaskAccepted']): Promise<string> {
  let task: Task = accepted._task;
  while (task.status === 'IN_PROGRESS') {
    await new Promise(resolve => setTimeout(resolve, POLL_MS));
    task = answered(await client.GET('/api/tasks/{id}/', { params: { path: { id: task.id } } }));
  }
  if (task.status !== 'SUCCESS') throw new Error(`${task.name}: ${task.error?.msg_key}`);
  return accepted.entity;
}

/** With `async=1` the answer is the task. */
function started(data: object): components['schemas']['TaskAccepted'] {
  if (!('_task' in data)) throw new Error('no task');
  return data as components['schemas']['TaskAccepted'];
}

type Backup = NonNullable<
  paths['/api/domains/backup/']['post']['requestBody']
>['content']['application/json'];

async function backUp(body: Backup): Promise<string> {
  return ended(
    started(answered(await client.POST('/api/domains/backup/', { params: { query: { async: 1 } }, body }))),
  );
}

const { token } = answered(await client.POST('/auth/', { body: { username, password } }));
client.use({
  onRequest: ({ request }) => {
    request.headers.set('authorization', `jwt ${token}`);
    return request;
  },
});

const { results } = answered(await client.GET('/api/domains/', { params: { query: { limit: 10 } } }));
const found = results.find(({ id }) => id === domain);
const { node } = answered(
  await client.GET('/api/domains/{id}/', { params: { path: { id: found?.id ?? '' } } }),
);
const file = await backUp({ domain, datapool, can_be_incremental: true });
const extended = await backUp({ domain, backup: file });
const { states } = answered(await client.GET('/api/library/{id}/', { params: { path: { id: extended } } }));
const restored = await ended(
  started(
    answered(
      await client.POST('/api/domains/automated-restore/', {
        params: { query: { async: 1 } },
        body: { file, node: node.id, datapool, verbose_name: `${found?.verbose_name} again` },
      }),
    ),
  ),
);
const asked = await client.GET('/api/domains/{id}/', {
  params: { path: { id: '00000000-0000-4000-8000-000000000000' } },
});
process.stdout.write(
  JSON.stringify({
    file,
    extended,
    states: states.length,
    restored,
    refused: asked.error?.errors[0]?.msg_key,
  }),
);

import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import { LONG_ACTION, runTask } from './actions.ts';
import { principalOf, type RouteModule } from './app.ts';
import { AsyncQuery, body } from './schemas/common.ts';
import { taskAnswers } from './schemas/task.ts';
import { type TestServer, testServer } from './test-server.ts';

let server: TestServer;
let started: string[];
let refusal: VirtkeepError | undefined;
const entity = newId();

const actionRoutes: RouteModule = (app, services) => {
  app.post(
    '/api/action/',
    {
      config: { access: 'backup.create', ...LONG_ACTION },
      schema: { querystring: AsyncQuery, body: body({}, {}), response: taskAnswers() },
    },
    (request, reply) =>
      runTask(services, request, reply, {
        start: async taskId => {
          if (refusal !== undefined) throw refusal;
          const entities = [{ id: entity, class: 'file' }];
          const user = principalOf(request);
          const task = { id: taskId, name: 'act', verboseName: 'Act', user, entities };
          const created = await services.tasks.create(task);
          started.push(taskId);
          return created;
        },
      }),
  );
};

beforeEach(async () => {
  started = [];
  refusal = undefined;
  server = await testServer([actionRoutes], { sync_wait_s: 280 });
});

/** A server on which nobody waits for long. */
async function impatient(): Promise<void> {
  await server.close();
  server = await testServer([actionRoutes], { sync_wait_s: 1 });
}

afterEach(() => server.close());

function post(query = '', payload: object = {}) {
  const headers = { authorization: server.authorization };
  return server.app.inject({ method: 'POST', url: `/api/action/${query}`, headers, payload });
}

/** Ends the task as soon as it has been started. */
async function endWith(outcome: Parameters<typeof server.services.tasks.finish>[1]): Promise<void> {
  while (started.length === 0) await new Promise(resolve => setTimeout(resolve, 5));
  await server.services.tasks.finish(started[0]!, outcome);
}

describe('a long action', () => {
  test('with async=1 answers 202 with the entity and the task', async () => {
    const answer = await post('?async=1');
    expect(answer.statusCode).toBe(202);
    expect(answer.json()).toMatchObject({ entity, _task: { id: started[0], status: 'IN_PROGRESS' } });
  });

  test('waits for the end and answers the result', async () => {
    const [answer] = await Promise.all([post(), endWith({ status: 'SUCCESS', result: { made: true } })]);
    expect([answer.statusCode, answer.json()]).toEqual([200, { made: true }]);
  });

  test("answers the task's error, with its text", async () => {
    const error = new VirtkeepError('pool_read_only', { pool: 'archive' });
    const [answer] = await Promise.all([post('?async=0'), endWith({ status: 'FAILED', error })]);
    expect(answer.statusCode).toBe(409);
    expect(answer.json().errors[0]).toMatchObject({ msg_key: 'pool_read_only', detail: error.message });
  });

  test('answers 409 when it was cancelled', async () => {
    const [answer] = await Promise.all([post(), endWith({ status: 'CANCELED' })]);
    expect([answer.statusCode, answer.json().errors[0].msg_key]).toEqual([409, 'canceled']);
  });

  test('turns into 202 after the waiting time', async () => {
    await impatient();
    const answer = await post();
    expect([answer.statusCode, answer.json()._task.status]).toEqual([202, 'IN_PROGRESS']);
  });

  test('turns into 202 when the controller stops', async () => {
    const answer = post();
    while (started.length === 0) await new Promise(resolve => setTimeout(resolve, 5));
    server.draining.abort();
    expect((await answer).statusCode).toBe(202);
    expect((await post()).json().errors[0].msg_key).toBe('draining');
  });
});

describe('with an idempotency key', () => {
  test('identical requests at once have one task', async () => {
    await impatient();
    const payload = { idempotency_key: newId() };
    const answers = await Promise.all([
      post('?async=1', payload),
      post('?async=1', payload),
      post('', payload),
    ]);
    expect(answers.map(answer => answer.statusCode)).toEqual([202, 202, 202]);
    expect(new Set(answers.map(answer => answer.json()._task.id))).toEqual(new Set(started));
    expect(started).toHaveLength(1);
  });

  test('a repetition gives the result of the task, or its error', async () => {
    const payload = { idempotency_key: newId() };
    await post('?async=1', payload);
    await endWith({ status: 'SUCCESS', result: { made: 1 } });
    expect((await post('', payload)).json()).toEqual({ made: 1 });
    expect(started).toHaveLength(1);
  });

  test('a refused start frees the key', async () => {
    const payload = { idempotency_key: newId() };
    refusal = new VirtkeepError('domain_busy', { domain: 'a', operation: 'b', kind: 'c' });
    expect((await post('?async=1', payload)).statusCode).toBe(409);
    refusal = undefined;
    expect((await post('?async=1', payload)).statusCode).toBe(202);
  });

  test('a crash before the task was written starts it under the same id', async () => {
    const key = newId();
    const keyed = await server.services.idempotency.begin({
      userId: server.userId,
      key,
      method: 'POST',
      path: '/api/action/',
      body: {},
      longAction: true,
    });
    keyed.release();
    expect((await post('?async=1', { idempotency_key: key })).json()._task.id).toBe(keyed.taskId);
  });
});

test('a route without declared access stops the server from being built', async () => {
  const bare: RouteModule = app => {
    app.get('/api/bare/', async () => ({}));
  };
  await expect(testServer([bare])).rejects.toThrow('declares no access');
});

test('more requests than allowed in a minute are refused with the time to wait', async () => {
  const limited = await testServer([actionRoutes], { limits: { requests_per_minute: 10 } });
  const get = () => limited.app.inject({ url: '/metrics' });
  for (let count = 0; count < 10; count += 1) expect((await get()).statusCode).toBe(200);
  const refused = await get();
  expect([refused.statusCode, refused.json().errors[0].msg_key]).toEqual([429, 'too_many_requests']);
  expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0);
  await limited.close();
});

import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { ClusterWorld } from '../cluster/world.ts';
import type { LabController } from '../lab/controller.ts';
import { signalProcess } from '../lab/processes.ts';
import { waitFor } from '../lab/run.ts';

const TAKING_OVER_MS = 120_000;
/** Of a process that has lost its turn; systemd starts it again. */
const EXIT_LOST = 75;

let world: ClusterWorld;

beforeAll(async () => {
  world = new ClusterWorld();
  // who loses its turn is what is counted here: not one whose renewal waited for a busy disk
  await world.start({ controllers: 3, nodes: 0, vms: 0, leaseS: 10 });
});

afterAll(() => world.end());

/** @returns the one that acts when it is none of these */
async function nextActing(...others: LabController[]): Promise<LabController> {
  await waitFor('another controller to act', async () => world.acting(others) !== undefined, TAKING_OVER_MS);
  return world.acting(others)!;
}

test('each of them answers, whichever acts, and knows who is logged in', async () => {
  const [one, two, three] = world.controllers as [LabController, LabController, LabController];
  expect(world.acting()).toBe(one);
  const admin = await two.admin();
  await admin.ok('POST', '/api/users/', { username: 'eve', password: 'a-Passw0rd-of-hers', role: 'auditor' });
  for (const controller of [one, two, three]) {
    const again = controller.anonymous();
    again.token = admin.token;
    expect((await again.list<{ username: string }>('/api/users/')).map(user => user.username)).toContain(
      'eve',
    );
  }
  expect(await three.anonymous().send('GET', '/api/users/')).toMatchObject({ status: 401 });
});

test('the address that is counted and audited is that of the client', async () => {
  const standby = world.controllers.find(controller => controller !== world.acting())!;
  const admin = await standby.admin();
  const [newest] = await admin.list<{ address: string }>('/api/audit/?ordering=-created');
  expect(newest).toMatchObject({ address: '127.0.0.1' });
});

test('when the one that acts is killed another one does, nobody has to log in anew, and it stands by when it is back', async () => {
  const before = world.acting()!;
  const admin = await world.controllers.find(controller => controller !== before)!.admin();
  await before.daemon.kill();
  // it waits for the next one
  expect(await admin.send('GET', '/api/users/')).toMatchObject({ status: 200 });
  const next = await nextActing(before);
  await before.daemon.start();
  expect(world.acting()).toBe(next);
  expect(await (await before.admin()).send('GET', '/api/users/')).toMatchObject({ status: 200 });
});

test('one that ends in order gives its turn up at once', async () => {
  const before = world.acting()!;
  await before.daemon.stop();
  const next = await nextActing(before);
  expect(next.daemon.log()).not.toContain('whose turn it is cannot be seen');
  await before.daemon.start();
});

test('one that was stopped while another took over does nothing when it goes on, but end', async () => {
  const before = world.acting()!;
  const pid = before.daemon.pid!;
  const { ended } = before.daemon;
  signalProcess(pid, 'SIGSTOP');
  try {
    await nextActing(before);
  } finally {
    signalProcess(pid, 'SIGCONT');
  }
  expect(await ended).toBe(EXIT_LOST);
  await before.daemon.start();
});

test('while the database is away nothing is answered wrong, and all goes on when it is back', async () => {
  const admin = await world.controllers[0]!.admin();
  await world.postgres.end('immediate');
  const answers = world.controllers.map(controller => {
    const rest = controller.anonymous();
    rest.token = admin.token;
    return rest.send('GET', '/api/users/').catch(() => undefined);
  });
  world.postgres.begin();
  for (const answer of await Promise.all(answers)) expect([200, 503, undefined]).toContain(answer?.status);
  for (const controller of world.controllers) {
    if (controller.daemon.pid === undefined) await controller.daemon.start();
    const rest = controller.anonymous();
    rest.token = admin.token;
    await waitFor(
      'an answer',
      () =>
        rest.send('GET', '/api/users/').then(
          ({ status }) => status === 200,
          () => false,
        ),
      TAKING_OVER_MS,
    );
  }
});

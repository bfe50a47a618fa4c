/** A controller that is killed while it sends: nothing is lost. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { createLogger } from '@virtkeep/shared/log';
import { ChangeFeed } from '../../../controller/src/services/journal/changes.ts';
import { EventService } from '../../../controller/src/services/journal/events.ts';
import { NotificationService } from '../../../controller/src/services/notifications/notifications.ts';
import { makeControllerDatabase } from '../../../controller/src/store/test-database.ts';
import { type LabController, makeController } from '../../lab/controller.ts';
import { isSigned, newCertificate, WebhookReceiver } from './receivers.ts';
import { RUN_FAILED, SECRET } from './world.ts';

let directory: string;
let controller: LabController;
let database: Awaited<ReturnType<typeof makeControllerDatabase>>;
let hook: WebhookReceiver;
let ca: string;

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'virtkeep-notifications-'));
  database = await makeControllerDatabase(join(directory, 'state'));
  const { settings } = database;
  controller = await makeController({ dir: directory, password: 'a sound password', settings });
  const certificate = await newCertificate();
  ca = certificate.ca;
  hook = await new WebhookReceiver(certificate).start();
  await controller.daemon.start();
});
afterAll(async () => {
  await controller.daemon.stop();
  await hook.stop();
  await database.release();
  rmSync(directory, { recursive: true });
});

/** As a part of the controller raises it, while there is none. */
async function raise(key: string): Promise<void> {
  const db = await database.open();
  const service = new NotificationService({
    db,
    key: Buffer.alloc(32),
    events: new EventService(db, new ChangeFeed()),
    log: createLogger('test', 'error'),
    publicUrl: undefined,
  });
  await service.raise(RUN_FAILED, { key, now: new Date() });
  await db.destroy();
}

test('kill -9 in the middle of sending sends it again after the start, under the same id', async () => {
  const rest = await controller.admin();
  const webhook = { url: hook.url, secret: SECRET, ca };
  const target = await rest.ok<{ id: string }>('POST', '/api/notification-targets/', {
    verbose_name: 'chat',
    events: ['run_failed'],
    webhook,
  });
  expect(await rest.ok('POST', `/api/notification-targets/${target.id}/test/`)).toMatchObject({
    delivered: true,
  });
  hook.requests.length = 0;
  await controller.daemon.stop();
  await raise('run 1');
  const received = new Promise<void>(resolve => {
    hook.answer = () => resolve();
  });
  await controller.daemon.start();
  await received;
  await controller.daemon.kill();
  hook.answer = (_request, response) => response.writeHead(200).end();
  await controller.daemon.start();
  const again = await controller.admin();
  const list = () => again.ok<{ results: { id: string; status: string }[] }>('GET', '/api/notifications/');
  while ((await list()).results[0]!.status !== 'sent') await setTimeout(50);
  const { id } = (await list()).results[0]!;
  expect(hook.requests.map(({ headers }) => headers['webhook-id'])).toEqual([id, id]);
  expect(hook.requests.every(request => isSigned(request, SECRET))).toBe(true);
});

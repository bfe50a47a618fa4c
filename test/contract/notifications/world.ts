/** The notifications of a controller on a database file, with a clock that tests move. */
import { createLogger } from '@virtkeep/shared/log';
import { ChangeFeed } from '../../../controller/src/services/journal/changes.ts';
import { EventService } from '../../../controller/src/services/journal/events.ts';
import {
  EVENTS,
  EXAMPLE_DATA,
  type NotificationEvent,
} from '../../../controller/src/services/notifications/events.ts';
import { NotificationService } from '../../../controller/src/services/notifications/notifications.ts';
import type {
  NotificationRecord,
  TargetRecord,
} from '../../../controller/src/services/notifications/record.ts';
import type { Database } from '../../../controller/src/store/schema.ts';
import { makeTestDatabase, type TestDatabase } from '../../../controller/src/store/test-database.ts';
import type { MailServer, WebhookReceiver } from './receivers.ts';

export const PASSWORD = 'mail-password-7f3a';
export const SECRET = 'webhook-secret-of-the-receiver';
const MINUTE_MS = 60_000;

export const RUN_FAILED: NotificationEvent = { event: 'run_failed', data: EXAMPLE_DATA.run_failed };

export class World {
  database: TestDatabase | undefined;
  now = new Date('2026-03-01T02:00:00.000Z');
  sendTimeoutMs = 20_000;
  key = Buffer.alloc(32, 5);
  db!: Database;
  events!: EventService;
  service!: NotificationService;

  async open(): Promise<this> {
    this.database ??= await makeTestDatabase();
    this.db = await this.database.open();
    this.events = new EventService(this.db, new ChangeFeed());
    this.service = new NotificationService({
      db: this.db,
      key: this.key,
      events: this.events,
      log: createLogger('test', process.env.VIRTKEEP_TEST_LOG ? 'debug' : 'error'),
      publicUrl: 'https://backup.example.org',
      sendTimeoutMs: this.sendTimeoutMs,
    });
    return this;
  }

  /** As after a stop of the controller; what was being sent is broken off. */
  async restart(): Promise<void> {
    await this.service.stop();
    await this.db.destroy();
    await this.open();
  }

  async close(): Promise<void> {
    await this.service.stop();
    await this.db.destroy();
    await this.database!.release();
  }

  addMail(server: MailServer, fields: object = {}): Promise<TargetRecord> {
    const { certificate, implicit, login } = server.options;
    return this.service.targets.create(
      {
        verbose_name: `mail ${server.port}`,
        events: [...EVENTS],
        mail: {
          host: 'localhost',
          port: server.port,
          security: implicit ? 'tls' : 'starttls',
          from: 'virtkeep@example.org',
          to: ['one@example.org', 'two@example.org'],
          ca: certificate.ca,
          ...(login ? { username: login.user, password: login.password } : {}),
          ...fields,
        },
      },
      this.now,
    );
  }

  addWebhook(
    receiver: WebhookReceiver,
    ca: string,
    fields: object = {},
    name = `webhook ${receiver.port}`,
  ): Promise<TargetRecord> {
    return this.service.targets.create(
      {
        verbose_name: name,
        events: [...EVENTS],
        webhook: { url: receiver.url, secret: SECRET, ca, ...fields },
      },
      this.now,
    );
  }

  raise(key: string, event: NotificationEvent = RUN_FAILED): Promise<number> {
    return this.service.raise(event, { key, now: this.now });
  }

  deliver(): Promise<void> {
    return this.service.deliver(() => this.now);
  }

  /** The clock goes on by so much, with a look at the outbox twice a minute. */
  async pass(minutes: number): Promise<void> {
    const end = this.now.getTime() + minutes * MINUTE_MS;
    while (this.now.getTime() < end) {
      this.now = new Date(this.now.getTime() + MINUTE_MS / 2);
      await this.deliver();
    }
  }

  async outbox(): Promise<NotificationRecord[]> {
    const all = { descending: false, limit: 1000, offset: 0 };
    return (await this.service.outbox.list(all)).records;
  }

  /** The only one. */
  async single(): Promise<NotificationRecord> {
    const [first, ...others] = await this.outbox();
    if (first === undefined || others.length > 0) throw new Error(`${others.length + 1} notifications`);
    return first;
  }
}

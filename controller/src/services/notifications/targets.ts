/** Targets: who is told of what, and how they are reached. Their secrets go in and never come out, but to where they belong. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import type { Sealer } from '../../keys/sealing.ts';
import { isUniqueViolation } from '../../store/dialect.ts';
import type { Database, NotificationTargetRow } from '../../store/schema.ts';
import type { EventName } from './events.ts';
import type { TargetRecord } from './record.ts';
import {
  type Mail,
  type MailRequest,
  mailOf,
  type Webhook,
  type WebhookRequest,
  webhookOf,
} from './target-settings.ts';
import { checkTemplate, type Templates } from './templates.ts';

export interface TargetFields {
  verbose_name?: string;
  enabled?: boolean;
  events?: EventName[];
  templates?: Templates;
  mail?: MailRequest;
  webhook?: WebhookRequest;
}

/** Enough to send something to it. */
export interface Target {
  id: string;
  verbose_name: string;
  enabled: boolean;
  events: EventName[];
  templates: Templates;
  /** Undefined when its secrets do not open: the controller's key is another one. */
  channel: Mail | Webhook | undefined;
}

/** Each gets every message; more would rather be a list of recipients of their own. */
const MAX_TARGETS = 100;

export class NotificationTargets {
  readonly #db: Database;
  readonly #sealer: Sealer;

  constructor(db: Database, sealer: Sealer) {
    this.#db = db;
    this.#sealer = sealer;
  }

  async list(): Promise<TargetRecord[]> {
    const rows = await this.#db.selectFrom('notification_targets').selectAll().execute();
    const counts = await this.#counts();
    return rows.map(row => this.#record(row, counts));
  }

  /** @throws notification_target_not_found. */
  async get(id: string): Promise<TargetRecord> {
    return this.#record(await this.#row(id), await this.#counts());
  }

  async find(id: string): Promise<Target | undefined> {
    const row = await this.#find(id);
    return row === undefined ? undefined : this.#target(row);
  }

  /** Ids of the targets that want to be told of an event now. @param db or a transaction of the caller's */
  async wanting(event: EventName, db: Database): Promise<string[]> {
    const rows = await db
      .selectFrom('notification_targets')
      .select(['id', 'events_json'])
      .where('enabled', '=', 1)
      .execute();
    return rows.filter(row => (JSON.parse(row.events_json) as string[]).includes(event)).map(({ id }) => id);
  }

  /** @throws name_taken, too_many_notification_targets, conflicting_fields, missing_field, invalid_field. */
  async create(fields: TargetFields & { verbose_name: string }, now: Date): Promise<TargetRecord> {
    const { total } = await this.#db
      .selectFrom('notification_targets')
      .select(({ fn }) => fn.countAll<number>().as('total'))
      .executeTakeFirstOrThrow();
    if (Number(total) >= MAX_TARGETS)
      throw new VirtkeepError('too_many_notification_targets', { limit: MAX_TARGETS });
    const id = newId();
    const row: NotificationTargetRow = {
      id,
      verbose_name: fields.verbose_name,
      enabled: 1,
      events_json: '[]',
      templates_json: '{}',
      ...this.#columns(fields),
      ...this.#channelColumns(id, newChannel(fields)),
      created: now.toISOString(),
      modified: now.toISOString(),
    };
    await withFreeName(row.verbose_name, () =>
      this.#db.insertInto('notification_targets').values(row).execute(),
    );
    return this.get(id);
  }

  /** What is not named stays, secrets too. @throws notification_target_not_found, and those of `create`. */
  async update(id: string, fields: TargetFields, now: Date): Promise<TargetRecord> {
    const before = await this.#row(id);
    const columns = {
      ...this.#columns(fields),
      ...(fields.mail === undefined && fields.webhook === undefined
        ? {}
        : this.#channelColumns(id, changedChannel(fields, this.#shown(before)))),
      modified: now.toISOString(),
    };
    await withFreeName(fields.verbose_name ?? before.verbose_name, () =>
      this.#db.updateTable('notification_targets').set(columns).where('id', '=', id).execute(),
    );
    return this.get(id);
  }

  /** With all that it was to be told. @throws notification_target_not_found. */
  async remove(id: string): Promise<void> {
    await this.#row(id);
    await this.#db.deleteFrom('notification_targets').where('id', '=', id).execute();
  }

  #columns({ verbose_name, enabled, events, templates }: TargetFields) {
    if (templates !== undefined) checkTemplates(templates);
    return {
      ...(verbose_name === undefined ? {} : { verbose_name }),
      ...(enabled === undefined ? {} : { enabled: Number(enabled) }),
      ...(events === undefined ? {} : { events_json: JSON.stringify(events) }),
      ...(templates === undefined ? {} : { templates_json: JSON.stringify(templates) }),
    };
  }

  #channelColumns(id: string, { kind, settings, secrets }: Mail | Webhook) {
    return {
      kind,
      settings_json: JSON.stringify(settings),
      secrets_sealed: this.#sealer.seal(secrets, id),
    };
  }

  #target(row: NotificationTargetRow): Target {
    return {
      id: row.id,
      verbose_name: row.verbose_name,
      enabled: row.enabled === 1,
      events: JSON.parse(row.events_json) as EventName[],
      templates: JSON.parse(row.templates_json) as Templates,
      channel: this.#channel(row),
    };
  }

  #channel(row: NotificationTargetRow): Mail | Webhook | undefined {
    const secrets = this.#sealer.open(row.secrets_sealed, row.id);
    if (secrets === undefined) return undefined;
    return { kind: row.kind, settings: JSON.parse(row.settings_json), secrets } as Mail | Webhook;
  }

  /** The channel with empty secrets where they do not open, so that it can still be seen, and set anew. */
  #shown(row: NotificationTargetRow): Mail | Webhook {
    const none = row.kind === 'mail' ? { password: '' } : { url: '', secret: '' };
    const settings: unknown = JSON.parse(row.settings_json);
    return this.#channel(row) ?? ({ kind: row.kind, settings, secrets: none } as Mail | Webhook);
  }

  #record(row: NotificationTargetRow, counts: Counts): TargetRecord {
    const { id, verbose_name, enabled, events, templates } = this.#target(row);
    const channel = this.#shown(row);
    const { pending = 0, dead = 0 } = counts.get(id) ?? {};
    return {
      id,
      verbose_name,
      kind: channel.kind,
      enabled,
      events,
      templates,
      mail:
        channel.kind === 'mail'
          ? { ...channel.settings, has_password: channel.secrets.password !== '' }
          : null,
      webhook: channel.kind === 'webhook' ? shownWebhook(channel) : null,
      pending,
      dead,
      created: row.created,
      modified: row.modified,
    };
  }

  async #counts(): Promise<Counts> {
    const rows = await this.#db
      .selectFrom('notifications')
      .select(['target_id', 'status', ({ fn }) => fn.countAll<number>().as('total')])
      .where('status', 'in', ['pending', 'dead'])
      .groupBy(['target_id', 'status'])
      .execute();
    const counts: Counts = new Map();
    for (const { target_id, status, total } of rows)
      counts.set(target_id, { ...counts.get(target_id), [status]: Number(total) });
    return counts;
  }

  #find(id: string): Promise<NotificationTargetRow | undefined> {
    return this.#db.selectFrom('notification_targets').selectAll().where('id', '=', id).executeTakeFirst();
  }

  async #row(id: string): Promise<NotificationTargetRow> {
    const row = await this.#find(id);
    if (row === undefined) throw new VirtkeepError('notification_target_not_found', { id });
    return row;
  }
}

/** Of each target that has any. */
type Counts = Map<string, { pending?: number; dead?: number }>;

function newChannel({ mail, webhook }: TargetFields): Mail | Webhook {
  if (mail !== undefined && webhook !== undefined)
    throw new VirtkeepError('conflicting_fields', { first: 'mail', second: 'webhook' });
  if (mail !== undefined) return mailOf(mail);
  if (webhook !== undefined) return webhookOf(webhook);
  throw new VirtkeepError('missing_field', { field: 'mail' });
}

function changedChannel({ mail, webhook }: TargetFields, before: Mail | Webhook): Mail | Webhook {
  const other = before.kind === 'mail' ? 'webhook' : 'mail';
  if ((before.kind === 'mail' ? webhook : mail) !== undefined)
    throw new VirtkeepError('invalid_field', {
      field: other,
      reason: `is of another kind of target; this one is a ${before.kind}`,
    });
  return before.kind === 'mail' ? mailOf(mail ?? {}, before) : webhookOf(webhook ?? {}, before);
}

function shownWebhook({ settings, secrets }: Webhook): NonNullable<TargetRecord['webhook']> {
  return { url: secrets.url || settings.origin, has_secret: secrets.secret !== '', ca: settings.ca };
}

function checkTemplates(templates: Templates): void {
  for (const [event, template] of Object.entries(templates))
    for (const [part, text] of Object.entries(template))
      checkTemplate(event as EventName, text, `templates.${event}.${part}`);
}

/** @throws name_taken. */
async function withFreeName(name: string, write: () => Promise<unknown>): Promise<void> {
  try {
    await write();
  } catch (error) {
    if (isUniqueViolation(error)) throw new VirtkeepError('name_taken', { name, field: 'verbose_name' });
    throw error;
  }
}

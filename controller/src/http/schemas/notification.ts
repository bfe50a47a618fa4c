/** Targets of notifications, and the outbox. */
import Type, { type TProperties } from 'typebox';
import {
  ALL_EVENTS,
  type AnyEventName,
  EVENT_DATA,
  EVENTS,
  type EventName,
  EXAMPLE_DATA,
} from '../../services/notifications/events.ts';
import { NOTIFICATION_STATUSES } from '../../services/notifications/record.ts';
import { MAIL_SECURITIES } from '../../services/notifications/target-settings.ts';
import { MAX_SUBJECT_TEMPLATE, MAX_TEXT_TEMPLATE } from '../../services/notifications/templates.ts';
import { STORY } from '../document/story.ts';
import {
  body,
  described,
  integer,
  Name,
  nullable,
  oneOf,
  Permissions,
  part,
  record,
  Time,
  text,
  truth,
  Uuid,
} from './common.ts';

const MAX_RECIPIENTS = 50;
const MAX_PEM = 65_536;

/** Neither a list, nor a name beside the address, nor anything that ends a header. */
const ADDRESS = "^[A-Za-z0-9.!#$%&'*+/=?^_{|}~-]{1,64}@[A-Za-z0-9.-]{1,253}$";
const Address = (description: string) => Type.String({ pattern: ADDRESS, maxLength: 320, description });
const Recipients = Type.Array(Address('a recipient'), {
  minItems: 1,
  maxItems: MAX_RECIPIENTS,
  uniqueItems: true,
  description: 'addresses of the recipients',
});
const Ca = Type.String({
  maxLength: MAX_PEM,
  description: "certificates (PEM) that are trusted in place of the system's; empty: the system's",
});
const Events = Type.Array(oneOf(EVENTS), { uniqueItems: true, description: 'what it is told of' });

const Template = patch(
  {
    subject: Type.String({ maxLength: MAX_SUBJECT_TEMPLATE, description: 'one line' }),
    text: Type.String({ maxLength: MAX_TEXT_TEMPLATE, description: 'the message' }),
  },
  'what is left out is the default',
);
const Templates = patch(
  Object.fromEntries(EVENTS.map(event => [event, Template])) as Record<EventName, typeof Template>,
  'its own templates, by event: Mustache over the data of the event',
);

const mail = {
  host: Type.String({
    pattern: '^[A-Za-z0-9._:-]{1,255}$',
    description: 'name or address of the SMTP server',
  }),
  port: Type.Integer({
    minimum: 1,
    maximum: 65_535,
    description: '587, with tls 465, with none 25 when left out',
  }),
  security: oneOf(MAIL_SECURITIES, {
    description:
      'starttls (what it is when left out): TLS before anything else; tls: from the first byte; none: plain',
  }),
  username: Type.String({ maxLength: 255, description: 'for a login; empty: without one' }),
  from: Address('address of the sender'),
  to: Recipients,
  ca: Ca,
};
const password = Type.String({ maxLength: 1024, description: 'for the login; never told again' });
const NewMail = part(
  {
    ...mail,
    port: Type.Optional(mail.port),
    security: Type.Optional(mail.security),
    username: Type.Optional(mail.username),
    password: Type.Optional(password),
    ca: Type.Optional(Ca),
  },
  'an SMTP server',
);
const MailPatch = patch(
  { ...mail, password },
  'what is left out stays; the password must be given again when it would go elsewhere',
);

const url = Type.String({
  minLength: 1,
  maxLength: 2048,
  description: 'https://…, without user name and password; http:// for this machine only',
});
const secret = Type.String({
  minLength: 16,
  maxLength: 1024,
  description: 'with which messages are signed; never told again',
});
const NewWebhook = part({ url, secret, ca: Type.Optional(Ca) }, 'a receiver of HTTPS requests');
const WebhookPatch = patch({ url, secret, ca: Ca }, 'what is left out stays');

/** An object of which every field may be left out. */
function patch<P extends TProperties>(properties: P, description: string) {
  return Type.Partial(Type.Object(properties), { additionalProperties: false, description });
}

const targetName = described(Name, 'which no other target has');
const EXAMPLE_MAIL = {
  host: 'mail.example.org',
  security: 'starttls' as const,
  username: 'virtkeep',
  from: 'virtkeep@example.org',
  to: ['admin@example.org'],
};

export const NewTargetBody = body(
  {
    verbose_name: targetName,
    enabled: Type.Optional(truth('false: it is told of nothing for now')),
    events: Type.Optional(Events),
    templates: Type.Optional(Templates),
    mail: Type.Optional(NewMail),
    webhook: Type.Optional(NewWebhook),
  },
  {
    verbose_name: 'administrators',
    events: ['run_failed', 'protection_late'],
    mail: { ...EXAMPLE_MAIL, password: 'correct horse battery' },
  },
);

export const TargetPatchBody = body(
  {
    verbose_name: Type.Optional(targetName),
    enabled: Type.Optional(truth('false: it is told of nothing for now')),
    events: Type.Optional(Events),
    templates: described(Type.Optional(Templates), 'all of its own templates, by event; {}: the defaults'),
    mail: Type.Optional(MailPatch),
    webhook: Type.Optional(WebhookPatch),
  },
  { events: ['run_failed', 'summary'] },
);

export const NotificationTargetSchema = record(
  'NotificationTarget',
  {
    description: 'Who is told of what, and how',
    example: {
      id: STORY.notification_target,
      verbose_name: 'administrators',
      kind: 'mail',
      enabled: true,
      events: ['run_failed', 'protection_late'],
      templates: { run_failed: { subject: '{{task.verbose_name}} failed' } },
      mail: { ...EXAMPLE_MAIL, port: 587, ca: '', has_password: true },
      webhook: null,
      pending: 0,
      dead: 0,
      created: STORY.created,
      modified: STORY.created,
      permissions: ['update', 'remove', 'test'],
    },
  },
  {
    id: described(Uuid, 'id of the target'),
    verbose_name: text('its name'),
    kind: oneOf(['mail', 'webhook'], { description: 'how it is reached' }),
    enabled: truth('false: it is told of nothing for now'),
    events: Events,
    templates: Templates,
    mail: nullable(part({ ...mail, has_password: truth('a password is set') }, 'null: it is a webhook')),
    webhook: nullable(
      part({ url: text('where to'), has_secret: truth('a secret is set'), ca: Ca }, 'null: it is an e-mail'),
    ),
    pending: integer('notifications that wait for an attempt'),
    dead: integer('notifications that were given up'),
    created: described(Time, 'when it was made'),
    modified: described(Time, 'when it was changed last'),
    permissions: Permissions,
  },
);

export const NotificationTestSchema = record(
  'NotificationTest',
  {
    description: 'What came of a test',
    example: { delivered: false, reason: 'Invalid login: 535 Authentication failed' },
  },
  {
    delivered: truth('the target took it'),
    reason: text('why not; or what is to be known of it all the same; may be empty'),
  },
);

/** By event: a client of the document must choose by its name, which generated clients cannot express. */
const Data = Type.Unsafe<object>({
  type: 'object',
  additionalProperties: true,
  description:
    'the data of the event: RunNotification of run_failed, run_partial and run_succeeded, LateNotification of protection_late, SummaryNotification of summary, TestNotification of test',
});

/** The data of each event, as webhooks get it, too. */
export const EVENT_SCHEMAS = [
  dataRecord('RunNotification', 'run_failed'),
  dataRecord('LateNotification', 'protection_late'),
  dataRecord('SummaryNotification', 'summary'),
  dataRecord('TestNotification', 'test'),
];

function dataRecord($id: string, event: AnyEventName) {
  const { properties, description } = EVENT_DATA[event] as object as DescribedObject;
  return record<TProperties>($id, { description, example: EXAMPLE_DATA[event] }, properties);
}

interface DescribedObject {
  properties: TProperties;
  description: string;
}

export const NotificationSchema = record(
  'Notification',
  {
    description: 'A message for one target',
    example: {
      id: STORY.notification,
      target: { id: STORY.notification_target, verbose_name: 'administrators' },
      event: 'test',
      key: 'run 7a8b9c0d-1e2f-4a3b-9c4d-5e6f7a8b9c0e',
      status: 'pending',
      attempts: 2,
      next_attempt: STORY.ended,
      last_attempt: STORY.changed,
      reason: 'connect ECONNREFUSED 192.0.2.25:587',
      created: STORY.changed,
      data: EXAMPLE_DATA.test,
      permissions: ['retry', 'remove'],
    },
  },
  {
    id: described(Uuid, 'its id, and that of its delivery'),
    target: part({ id: described(Uuid, 'its id'), verbose_name: text('its name') }, 'who is told'),
    event: oneOf(ALL_EVENTS, { description: 'what of' }),
    key: text('names what has happened; a target is told of it once'),
    status: oneOf(NOTIFICATION_STATUSES, {
      description: 'pending: it is tried, or tried again; sent: the target took it; dead: it was given up',
    }),
    attempts: integer('how often it was tried, since it was raised or last asked for'),
    next_attempt: nullable(described(Time, 'when it is tried next; null: never by itself')),
    last_attempt: nullable(described(Time, 'when it was tried last; null: not yet')),
    reason: text('why the last attempt failed; empty: it did not'),
    created: described(Time, 'when it was raised'),
    data: Data,
    permissions: Permissions,
  },
);

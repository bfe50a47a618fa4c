/** The controller's settings file; packaging/controller.example.yaml is its commented form. */
import { existsSync } from 'node:fs';
import { isAbsolute } from 'node:path';
import { loadConfig } from '@virtkeep/shared/config';
import { z } from 'zod';
import { hasPassword, postgresUrlProblem } from './store/target.ts';

export const MAX_TOKEN_LIFETIME_S = 30 * 86_400;

const seconds = (fallback: number, max = 86_400) => z.number().positive().max(max).default(fallback);
const absolutePath = z.string().refine(isAbsolute, 'must be an absolute path');
const port = z.number().int().min(0).max(65_535);

/** What is wrong is said without the URL: it may hold a password. */
const postgresUrl = z.string().superRefine((text, context) => {
  const message = postgresUrlProblem(text);
  if (message !== undefined) context.addIssue({ code: 'custom', message });
});

const listenSchema = z.strictObject({
  host: z.string().min(1).optional(),
  port: port.default(8443),
});

const tlsSchema = z
  .strictObject({
    /** self_signed: signed by the controller's own CA; files: given; off: plain HTTP, for a reverse proxy. */
    mode: z.enum(['self_signed', 'files', 'off']).default('self_signed'),
    certificate: absolutePath.optional(),
    key: absolutePath.optional(),
    /** Names and addresses in the self-signed certificate, beside the machine's own. */
    names: z.array(z.string().min(1)).max(50).default([]),
  })
  .refine(tls => tls.mode !== 'files' || (tls.certificate !== undefined && tls.key !== undefined), {
    message: 'mode "files" needs certificate and key',
  });

const authSchema = z.strictObject({
  token_lifetime_s: seconds(8 * 3600, MAX_TOKEN_LIFETIME_S),
  integration_token_max_days: z.number().int().min(1).max(36_500).default(365),
});

const initialAdminSchema = z.strictObject({
  username: z.string().min(1).max(64).default('admin'),
  password_file: absolutePath.optional(),
});

const limitsSchema = z.strictObject({
  body_bytes: z
    .number()
    .int()
    .min(1024)
    .max(64 * 1024 * 1024)
    .default(1024 * 1024),
  requests_per_minute: z.number().int().min(10).default(6000),
  // ms; above this the event loop is so late that more work only makes everything late
  event_loop_delay_ms: z.number().int().min(100).max(3_600_000).default(3000),
  event_streams: z.number().int().min(1).max(10_000).default(200),
  event_streams_per_user: z.number().int().min(1).max(10_000).default(50),
  downloads: z.number().int().min(1).max(1000).default(32),
  downloads_per_user: z.number().int().min(1).max(1000).default(16),
  uploads: z.number().int().min(1).max(1000).default(8),
  uploads_per_user: z.number().int().min(1).max(1000).default(4),
  /** In which a reader must take a MiB, and the sender of an upload send one. */
  download_idle_s: seconds(60, 3600),
  idempotency_keys_per_user: z.number().int().min(1).max(10_000_000).default(20_000),
  /** In which a whole request must have arrived. */
  request_timeout_s: seconds(60, 3600),
  connections: z.number().int().min(1).max(1_000_000).default(4000),
  connections_per_address: z.number().int().min(1).max(1_000_000).default(500),
});

/** Of which no date before the first one comes. */
const days = z.number().int().min(1).max(36_500);

const keepSchema = z.strictObject({
  tasks_days: days.default(180),
  events_days: days.default(180),
  /** Runs of scheduled tasks. */
  runs_days: days.default(400),
  audit_days: days.default(730),
  /** What is not delivered by itself is given up after three days. */
  notifications_days: days.min(7).default(90),
  audit_records: z.number().int().min(1000).max(100_000_000).default(1_000_000),
});

const schedulesSchema = z.strictObject({
  /** Scheduled backups at a time on one node, whichever task they are of; those by hand count, too. 0: no limit. */
  per_node: z.number().int().min(0).max(1000).default(8),
  /** The same into one data pool. 0: no limit. */
  per_pool: z.number().int().min(0).max(1000).default(0),
});

const notificationsSchema = z.strictObject({
  /** HH:MM in the time zone of the controller: when people are told of all VMs. */
  daily_at: z
    .string()
    .regex(/^([01]\d|2[0-3]):[0-5]\d$/, 'must be a time of day, as 07:00')
    .default('07:00'),
});

const agentsSchema = z.strictObject({
  /** A node that was silent for this long is lost. */
  lost_after_s: seconds(30, 3600),
  enrolment_lifetime_s: seconds(3600, 7 * 86_400),
  /** The longest life of a certificate of another service. */
  service_certificate_max_days: z.number().int().min(1).max(3650).default(365),
});

const protectionSchema = z.strictObject({
  /** So long after a scheduled task was due a VM that it covers must have a new restore point. */
  grace_hours: z.number().min(0).max(8760).default(6),
  /** How old the newest good restore point of a VM may be that no scheduled task covers. */
  max_age_days: z.number().positive().max(3650).default(7),
});

const clusterSchema = z.strictObject({
  /** Base64 of the 32 bytes with which the keys in the database are sealed; the same file on every controller. */
  key_file: absolutePath.optional(),
  /** Where this controller takes what others forward, when it acts. */
  peer: z
    .strictObject({
      host: z.string().min(1).default('0.0.0.0'),
      port: port.default(8444),
    })
    .prefault({}),
  /** How the others reach that, as a name or address; the host's name when absent. */
  address: z.string().min(1).optional(),
  /** A controller that is silent for so long has lost its turn. */
  lease_s: z.number().min(5).max(300).default(15),
});

/**
 * What an administrator may also set while the controller runs (`services/settings`), by its place in this file. Not how long the audit is
 * kept: whoever has an administrator's login is not to end it.
 */
export const CHANGEABLE = {
  'schedules.per_node': schedulesSchema.shape.per_node,
  'schedules.per_pool': schedulesSchema.shape.per_pool,
  'protection.grace_hours': protectionSchema.shape.grace_hours,
  'protection.max_age_days': protectionSchema.shape.max_age_days,
  'notifications.daily_at': notificationsSchema.shape.daily_at,
  'keep.tasks_days': keepSchema.shape.tasks_days,
  'keep.events_days': keepSchema.shape.events_days,
  'keep.runs_days': keepSchema.shape.runs_days,
  'keep.notifications_days': keepSchema.shape.notifications_days,
} as const;

const apiSchema = z.strictObject({
  /** Adds the product's own spelling of guest-command fields (`qemu_cmd`). */
  emulator_name: z.enum(['qemu']).optional(),
  /** Also serves calls by the names that clients of the API family know them by (`http/other-names.ts`). */
  other_names: z.boolean().default(true),
  /** Address for `next` and `previous`; the request's Host header when absent. */
  public_url: z.url({ protocol: /^https?$/ }).optional(),
});

const settingsSchema = z.strictObject({
  state_dir: absolutePath.default('/var/lib/virtkeep-controller'),
  /** URL of a PostgreSQL database; SQLite in the state directory when absent. */
  database: postgresUrl.optional(),
  /** Holds the password for it, when it is not in the URL. */
  database_password_file: absolutePath.optional(),
  log_level: z.enum(['error', 'warn', 'info', 'debug']).default('info'),
  listen: listenSchema.prefault({}),
  tls: tlsSchema.prefault({}),
  /** Trust X-Forwarded-* of these proxies (addresses or networks). */
  trusted_proxies: z.array(z.string()).max(100).default([]),
  auth: authSchema.prefault({}),
  initial_admin: initialAdminSchema.prefault({}),
  sync_wait_s: seconds(300, 3600),
  shutdown_drain_s: seconds(30, 3600),
  api: apiSchema.prefault({}),
  cluster: clusterSchema.prefault({}),
  limits: limitsSchema.prefault({}),
  keep: keepSchema.prefault({}),
  protection: protectionSchema.prefault({}),
  agents: agentsSchema.prefault({}),
  schedules: schedulesSchema.prefault({}),
  notifications: notificationsSchema.prefault({}),
});

/** Passwords and tokens in plain are offered to this machine alone, unless a host is named. */
export const configSchema = settingsSchema.superRefine(checkPassword).transform(settings => {
  const { listen, tls } = settings;
  const host = listen.host ?? (tls.mode === 'off' ? '127.0.0.1' : '0.0.0.0');
  return { ...settings, listen: { ...listen, host } };
});

function checkPassword(settings: z.infer<typeof settingsSchema>, context: z.RefinementCtx): void {
  const { database, database_password_file: file } = settings;
  const refuse = (message: string) =>
    context.addIssue({ code: 'custom', path: ['database_password_file'], message });
  if (file === undefined) return;
  if (database === undefined) refuse('is for the setting database, which is absent');
  else if (hasPassword(database)) refuse('must not be there beside a password in the setting database');
}

export type ControllerConfig = z.infer<typeof configSchema>;

/** Where an installation has them: its service is started with them. */
export const USUAL_CONFIG = '/etc/virtkeep/controller.yaml';

/**
 * The settings that a command works by. Without a path these are the service's own, where there are such: by other ones it would work on
 * another state directory, and make a certificate authority there that no node knows.
 * @throws ConfigError
 */
export function chosenConfig(path: string | undefined, usual = USUAL_CONFIG): ControllerConfig {
  if (path === undefined && !existsSync(usual)) return configSchema.parse({});
  return loadControllerConfig(path ?? usual);
}

/** @throws ConfigError naming the key and what is wrong with it. */
export function loadControllerConfig(path: string): ControllerConfig {
  return loadConfig(path, configSchema);
}

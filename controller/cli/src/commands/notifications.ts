/** `notifications`: what was told to whom, and `notifications targets`: who is told of what. */
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { type Command, InvalidArgumentError } from 'commander';
import type { Client, Json } from '../client.ts';
import { type GlobalOptions, withClient } from '../context.ts';
import { CliError, ExitCode } from '../exit-codes.ts';
import { clean, note, print, printFields, printJson, printTable } from '../output.ts';
import { askPassword, warnOfPlainHttp } from '../prompt.ts';
import { type Named, resolve } from '../resolve.ts';
import { loadSession } from '../session.ts';

const PATH = '/api/notification-targets/';
const ALL_EVENTS = ['run_failed', 'run_partial', 'run_succeeded', 'protection_late', 'summary'];
/** What nobody wants to miss. */
const USUAL_EVENTS = ['run_failed', 'run_partial', 'protection_late'];
const SECRET_BYTES = 32;

export function addNotifications(program: Command): void {
  const notifications = program
    .command('notifications')
    .description('who is told of runs and of VMs that are late, and what they were told');
  addOutbox(notifications);
  addRemoval(notifications);
  const targets = notifications.command('targets').description('who is told of what');
  addTargetLists(targets);
  addNewTargets(targets);
  addChange(targets);
  addTargetActions(targets);
}

interface ListOptions {
  status?: string;
  target?: string;
  event?: string;
}

function addOutbox(notifications: Command): void {
  notifications
    .command('list', { isDefault: true })
    .description('list notifications, newest first')
    .option('--status <status>', 'pending, sent or dead (given up)')
    .option('--target <target>', 'for this target')
    .option('--event <event>', 'of this event')
    .action(async ({ status, target, event }: ListOptions, command: Command) => {
      const all = await withClient(async client => {
        const id = target === undefined ? undefined : (await targetOf(client, target)).id;
        return client.all('/api/notifications/', { status, event, target: id });
      });
      if (command.optsWithGlobals<GlobalOptions>().json) return printJson(all);
      printTable(
        ['CREATED', 'EVENT', 'TARGET', 'STATUS', 'ATTEMPTS', 'NEXT', 'REASON', 'ID'],
        all.map(one => [
          one.created,
          one.event,
          (one.target as Json).verbose_name,
          one.status,
          one.attempts,
          one.next_attempt,
          one.reason,
          one.id,
        ]),
      );
    });
  notifications
    .command('show <id>')
    .description('one notification, with the data of its event')
    .action(async (id: string, _options, command: Command) => {
      const one = await withClient(client => client.get(`/api/notifications/${encodeURIComponent(id)}/`));
      if (command.optsWithGlobals<GlobalOptions>().json) return printJson(one);
      const { target, data, permissions: _permissions, ...fields } = one;
      printFields([['target', (target as Json).verbose_name], ...Object.entries(fields)]);
      printJson(data);
    });
  notifications
    .command('retry <id>')
    .description('try one again that was given up, or that waits')
    .action(async (id: string, _options, command: Command) => {
      const one = await withClient(client =>
        client.post(`/api/notifications/${encodeURIComponent(id)}/retry/`),
      );
      if (command.optsWithGlobals<GlobalOptions>().json) printJson(one);
      else print(clean(`${one.event} for ${(one.target as Json).verbose_name}: tried again`));
    });
}

function addRemoval(notifications: Command): void {
  notifications
    .command('remove <id>')
    .description('forget one, delivered or not')
    .action(async (id: string, _options, command: Command) => {
      await withClient(client => client.post(`/api/notifications/${encodeURIComponent(id)}/remove/`));
      if (command.optsWithGlobals<GlobalOptions>().json) printJson({});
      else print(clean(`${id}: removed`));
    });
}

function addTargetLists(targets: Command): void {
  targets
    .command('list', { isDefault: true })
    .description('list targets')
    .action(async (_options, command: Command) => {
      const all = await withClient(client => client.all(PATH));
      if (command.optsWithGlobals<GlobalOptions>().json) return printJson(all);
      printTable(
        ['NAME', 'KIND', 'ENABLED', 'EVENTS', 'WAITING', 'GIVEN UP', 'ID'],
        all.map(one => [
          one.verbose_name,
          one.kind,
          one.enabled ? 'yes' : 'no',
          (one.events as string[]).join(' '),
          one.pending,
          one.dead,
          one.id,
        ]),
      );
    });
  targets
    .command('show <target>')
    .description('one target, without its secrets')
    .action(async (target: string, _options, command: Command) => {
      const one = await withClient(client => targetOf(client, target));
      if (command.optsWithGlobals<GlobalOptions>().json) return printJson(one);
      const channel = Object.entries((one.mail ?? one.webhook ?? {}) as Json);
      printFields([
        ['name', one.verbose_name],
        ['kind', one.kind],
        ['enabled', one.enabled],
        ['events', (one.events as string[]).join(', ')],
        ['own templates', Object.keys(one.templates as Json).join(', ')],
        ...channel.map(([name, value]): [string, unknown] => [
          name,
          Array.isArray(value)
            ? value.join(', ')
            : name === 'ca'
              ? value === ''
                ? "the system's"
                : 'its own'
              : value,
        ]),
        ['waiting', one.pending],
        ['given up', one.dead],
      ]);
    });
}

interface CommonOptions {
  event?: string[];
  template?: string[];
  ca?: string;
}

interface MailOptions extends CommonOptions {
  host?: string;
  port?: number;
  security?: string;
  username?: string;
  passwordFile?: string;
  from?: string;
  to?: string[];
}

interface WebhookOptions extends CommonOptions {
  secretFile?: string;
  generateSecret?: boolean;
}

/** What both kinds have, new or changed. */
function withCommonOptions(command: Command): Command {
  return command
    .option('--event <event...>', `what it is told of: ${ALL_EVENTS.join(', ')}, or all`)
    .option('--template <event.part=file...>', 'its own template: run_failed.subject=FILE, summary.text=FILE')
    .option('--ca <file>', "certificates (PEM) to trust in place of the system's; '' for the system's");
}

function withMailOptions(command: Command): Command {
  return command
    .option('--host <host>', 'SMTP server')
    .option('--port <port>', 'its port: 587, with tls 465, with none 25', port)
    .option('--security <how>', 'starttls (default), tls or none')
    .option('--username <name>', "for a login; its password is asked for, or read from stdin; '' for none")
    .option('--password-file <file>', 'file with the password of the login')
    .option('--from <address>', 'sender')
    .option('--to <address...>', 'recipients');
}

function addNewTargets(targets: Command): void {
  withCommonOptions(withMailOptions(targets.command('add-mail <name>')))
    .description('tell people by e-mail')
    .action(async (name: string, options: MailOptions, command: Command) => {
      const mail = mailFields(options);
      if (options.username || options.passwordFile)
        mail.password = await secretOf('Password: ', options.passwordFile);
      await add(command, { verbose_name: name, ...commonFields(options, USUAL_EVENTS), mail });
    });
  withCommonOptions(targets.command('add-webhook <name> <url>'))
    .description('tell a program by a signed HTTPS request; the secret is asked for, or read from stdin')
    .option('--secret-file <file>', 'file with the secret')
    .option('--generate-secret', 'make a secret, and print it this once')
    .action(async (name: string, url: string, options: WebhookOptions, command: Command) => {
      const generated = options.generateSecret
        ? `whsec_${randomBytes(SECRET_BYTES).toString('base64')}`
        : undefined;
      const secret = generated ?? (await secretOf('Secret: ', options.secretFile));
      const webhook = { url, secret, ...caField(options) };
      await add(command, { verbose_name: name, ...commonFields(options, USUAL_EVENTS), webhook });
      if (generated !== undefined) print(generated);
    });
}

async function add(command: Command, body: Json): Promise<void> {
  const target = await withClient(client => client.post<Named>(PATH, body));
  if (command.optsWithGlobals<GlobalOptions>().json) printJson(target);
  else note(`${target.verbose_name}: added; try it with "virtkeep notifications targets test"`);
}

interface ChangeOptions extends MailOptions, WebhookOptions {
  name?: string;
  enable?: boolean;
  disable?: boolean;
  defaultTemplates?: boolean;
  password?: boolean;
  url?: string;
  secret?: boolean;
}

function addChange(targets: Command): void {
  withCommonOptions(withMailOptions(targets.command('set <target>')))
    .description('change a target; what is not named stays, secrets too')
    .option('--name <name>', 'another name')
    .option('--enable', 'tell it again')
    .option('--disable', 'tell it nothing for now')
    .option('--default-templates', 'no templates of its own')
    .option('--password', 'ask for another password, or read it from stdin')
    .option('--url <url>', 'another address of a webhook')
    .option('--secret', 'ask for another secret, or read it from stdin')
    .option('--secret-file <file>', 'file with another secret')
    .action(async (target: string, options: ChangeOptions, command: Command) => {
      const changed = await withClient(async client => {
        const before = await targetOf(client, target);
        return client.put(`${PATH}${before.id}/`, await changes(options, before));
      });
      if (command.optsWithGlobals<GlobalOptions>().json) printJson(changed);
      else print(clean(`${changed.verbose_name}: changed`));
    });
}

async function changes(options: ChangeOptions, before: Named): Promise<Json> {
  const { name, enable, disable, defaultTemplates, template } = options;
  const former = defaultTemplates ? {} : (before.templates as Json);
  return {
    ...(name === undefined ? {} : { verbose_name: name }),
    ...(enable || disable ? { enabled: enable === true } : {}),
    ...commonFields(options, undefined, former),
    ...(defaultTemplates && template === undefined ? { templates: {} } : {}),
    ...(await channelChanges(options, before)),
  };
}

async function channelChanges(options: ChangeOptions, { kind, verbose_name }: Named): Promise<Json> {
  const [mail, webhook] = [await mailChanges(options), await webhookChanges(options)];
  // both have certificates
  const others = Object.keys(kind === 'mail' ? webhook : mail).filter(field => field !== 'ca');
  if (others.length > 0)
    throw new CliError(
      `${verbose_name} is a ${String(kind)} and has no ${others.join(', ')}.`,
      ExitCode.usage,
    );
  const channel = kind === 'mail' ? mail : webhook;
  return Object.keys(channel).length === 0 ? {} : { [String(kind)]: channel };
}

async function mailChanges(options: ChangeOptions): Promise<Json> {
  const fields = mailFields(options);
  const asks = options.password || options.passwordFile !== undefined;
  return asks ? { ...fields, password: await secretOf('Password: ', options.passwordFile) } : fields;
}

async function webhookChanges(options: ChangeOptions): Promise<Json> {
  const asks = options.secret || options.secretFile !== undefined;
  return {
    ...(options.url === undefined ? {} : { url: options.url }),
    ...(asks ? { secret: await secretOf('Secret: ', options.secretFile) } : {}),
    ...caField(options),
  };
}

function addTargetActions(targets: Command): void {
  targets
    .command('remove <target>')
    .description('remove a target, with all that it was to be told')
    .action(async (target: string, _options, command: Command) => {
      const { verbose_name } = await withClient(async client => {
        const found = await targetOf(client, target);
        await client.post(`${PATH}${found.id}/remove/`);
        return found;
      });
      if (command.optsWithGlobals<GlobalOptions>().json) printJson({});
      else print(clean(`${verbose_name}: removed`));
    });
  targets
    .command('test <target>')
    .description('send a test now; exit code 1 when it does not arrive')
    .action(async (target: string, _options, command: Command) => {
      const result = await withClient(async client => {
        const { id } = await targetOf(client, target);
        return client.post(`${PATH}${id}/test/`);
      });
      const reason = result.reason ? `: ${String(result.reason)}` : '';
      if (command.optsWithGlobals<GlobalOptions>().json) printJson(result);
      else if (result.delivered) print(clean(`delivered${reason}`));
      if (!result.delivered) throw new CliError(clean(`not delivered${reason}`), ExitCode.failed);
    });
}

const targetOf = (client: Client, nameOrId: string) => resolve(client, 'notification-targets', nameOrId);

/** @param former templates, of which those that are given take the place */
function commonFields(
  { event, template }: CommonOptions,
  usual: string[] | undefined,
  former: Json = {},
): Json {
  const events = event?.flatMap(text => (text === 'all' ? ALL_EVENTS : text.split(','))) ?? usual;
  return {
    ...(events === undefined ? {} : { events: [...new Set(events)] }),
    ...(template === undefined ? {} : { templates: templatesOf(template, former) }),
  };
}

function templatesOf(given: string[], former: Json): Json {
  const templates: Record<string, Json> = structuredClone(former) as Record<string, Json>;
  for (const text of given) {
    const [, event, part, file] = /^([a-z_]+)\.(subject|text)=(.+)$/.exec(text) ?? [];
    if (event === undefined || part === undefined || file === undefined)
      throw new CliError(`"${text}" is no template: EVENT.subject=FILE or EVENT.text=FILE.`, ExitCode.usage);
    const content = readText(file);
    templates[event] = { ...templates[event], [part]: part === 'subject' ? content.trim() : content };
  }
  return templates;
}

function mailFields({
  host,
  port: number,
  security,
  username,
  from,
  to,
  ca,
}: MailOptions & { ca?: string | undefined }): Json {
  const fields = { host, port: number, security, username, from, to };
  const given = Object.entries(fields).filter(([, value]) => value !== undefined);
  return { ...Object.fromEntries(given), ...caField(ca === undefined ? {} : { ca }) };
}

function caField({ ca }: { ca?: string }): Json {
  return ca === undefined ? {} : { ca: ca === '' ? '' : readText(ca) };
}

/** Never an argument: a file, the terminal without an echo, or the whole of stdin. */
function secretOf(question: string, file: string | undefined): Promise<string> {
  warnOfPlainHttp(loadSession().url);
  return file === undefined ? askPassword(question) : Promise.resolve(readText(file).replace(/\r?\n$/, ''));
}

function readText(file: string): string {
  try {
    return readFileSync(file === '-' ? 0 : file, 'utf8');
  } catch (error) {
    throw new CliError(`Cannot read ${file}: ${(error as Error).message}`, ExitCode.usage);
  }
}

function port(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1 || value > 65_535)
    throw new InvalidArgumentError('It is 1 to 65535.');
  return value;
}

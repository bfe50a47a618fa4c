import { type Command, Option } from 'commander';
import type { Client, Json } from '../client.ts';
import { type GlobalOptions, withClient } from '../context.ts';
import { CliError, ExitCode } from '../exit-codes.ts';
import { count } from '../options.ts';
import { clean, note, print, printJson, printTable } from '../output.ts';
import { outputForm } from '../output-form.ts';
import { askPassword, askPasswordChange } from '../prompt.ts';

const ROLES = ['administrator', 'operator', 'auditor', 'backup_service'];

interface User extends Json {
  id: number;
  username: string;
}

const isJson = (command: Command) => command.optsWithGlobals<GlobalOptions>().json === true;

/** `users`, `sessions` and `tokens`: who may log in, who has, and what acts for them. */
export function addUsers(program: Command): void {
  const users = program.command('users').description('who may log in');
  users
    .command('list', { isDefault: true })
    .description('list the users')
    .action(async (_options, command: Command) => {
      const all = await withClient(client => client.all('/api/users/'));
      if (isJson(command)) return printJson(all);
      printTable(
        ['NAME', 'ROLE', 'ENABLED', 'LAST LOGIN', 'DESCRIPTION', 'ID'],
        all.map(user => [
          user.username,
          user.role,
          user.enabled ? 'yes' : 'no',
          user.last_login ?? 'never',
          user.description,
          user.id,
        ]),
      );
    });
  users
    .command('add <name>')
    .description('add a user; the password is asked for, or read from stdin')
    .addOption(new Option('--role <role>', 'what they may do').choices(ROLES).default('operator'))
    .option('--description <text>', 'free text')
    .action(async (username: string, options: { role: string; description?: string }, command: Command) => {
      const password = await askPassword(`Password of ${username}: `);
      const body = { username, password, ...options };
      told(await withClient(client => client.post<User>('/api/users/', body)), command, 'added');
    });
  users
    .command('set <name>')
    .description('change a user')
    .addOption(new Option('--role <role>', 'what they may do').choices(ROLES))
    .option('--description <text>', 'free text')
    .option('--enable', 'let them log in')
    .option('--disable', 'no login, and the end of those that are')
    .option(
      '--password',
      'set a password, which is asked for or read from stdin; your own after the present one',
    )
    .option('--end-sessions', 'end all their logins')
    .option('--end-tokens', 'revoke all their tokens')
    .action(async (name: string, options: SetOptions, command: Command) => {
      const changed = await onUser(name, async (client, user) => {
        const password = options.password ? await newPasswordOf(client, user) : {};
        return client.put<User>(`/api/users/${user.id}/`, { ...changesOf(options), ...password });
      });
      told(changed, command, 'changed');
    });
  users
    .command('remove <name>')
    .description('remove a user, with their logins and tokens; what they did keeps their name')
    .action(async (name: string, _options, command: Command) => {
      await onUser(name, (client, { id }) => client.post(`/api/users/${id}/remove/`));
      if (isJson(command)) printJson({});
      else print(`${clean(name)}: removed`);
    });
  addSessions(program);
  addTokens(program);
}

interface SetOptions {
  role?: string;
  description?: string;
  enable?: boolean;
  disable?: boolean;
  password?: boolean;
  endSessions?: boolean;
  endTokens?: boolean;
}

function changesOf(options: SetOptions): Json {
  const { role, description, enable, disable, endSessions, endTokens } = options;
  return {
    ...(role === undefined ? {} : { role }),
    ...(description === undefined ? {} : { description }),
    ...(enable ? { enabled: true } : {}),
    ...(disable ? { enabled: false } : {}),
    ...(endSessions ? { end_sessions: true } : {}),
    ...(endTokens ? { end_tokens: true } : {}),
  };
}

/** Whoever changes their own proves that they are not somebody at a session left open. */
async function newPasswordOf(client: Client, { id, username }: User): Promise<Json> {
  if (id !== (await oneself(client)).id)
    return { password: await askPassword(`New password of ${username}: `) };
  const { present, wanted } = await askPasswordChange();
  return { old_password: present, password: wanted };
}

function told(user: User, command: Command, what: string): void {
  if (isJson(command)) printJson(user);
  else print(`${clean(user.username)}: ${what}`);
}

function onUser<T>(name: string, work: (client: Client, user: User) => Promise<T>): Promise<T> {
  return withClient(async client => work(client, await userCalled(client, name)));
}

/** Everybody finds themselves; the list is for who manages users. */
async function userCalled(client: Client, name: string): Promise<User> {
  const own = await oneself(client);
  if (own.username === name.toLowerCase()) return own;
  const found = (await client.all<User>('/api/users/')).find(user => user.username === name.toLowerCase());
  if (found === undefined) throw new CliError(`There is no user "${name}".`, ExitCode.notFound);
  return found;
}

const oneself = async (client: Client): Promise<User> =>
  (await client.get<{ user: User }>('/api/session/')).user;

function addSessions(program: Command): void {
  const sessions = program.command('sessions').description('logins with a password');
  const ofUser = () => new Option('--user <name>', "another user's, in place of your own");
  sessions
    .command('list', { isDefault: true })
    .description('list your logins, or those of a user')
    .addOption(ofUser())
    .action(async ({ user }: { user?: string }, command: Command) => {
      const all = await withClient(async client => client.all(await sessionsOf(client, user)));
      if (isJson(command)) return printJson(all);
      printTable(
        ['CLIENT', 'FROM', 'LAST USED', 'SINCE', 'EXPIRES', 'THIS ONE', 'ID'],
        all.map(session => [
          session.client || 'not known',
          session.address || 'not known',
          session.last_used,
          session.created,
          session.expires_on,
          session.current ? 'yes' : '',
          session.id,
        ]),
      );
    });
  sessions
    .command('end <id>')
    .description('end one login, with every token refreshed from it; `sessions list -o wide` tells the ids')
    .addOption(ofUser())
    .action(async (id: string, { user }: { user?: string }, command: Command) => {
      await withClient(async client =>
        client.delete(`${await sessionsOf(client, user)}${encodeURIComponent(id)}/`),
      );
      if (isJson(command)) printJson({});
      else print(`${clean(id)}: ended`);
    });
}

async function sessionsOf(client: Client, name: string | undefined): Promise<string> {
  const { id } = name === undefined ? await oneself(client) : await userCalled(client, name);
  return `/api/users/${id}/sessions/`;
}

function addTokens(program: Command): void {
  const tokens = program.command('tokens').description('long-lived tokens of programs');
  tokens
    .command('list', { isDefault: true })
    .description('list your tokens; an administrator sees all')
    .action(async (_options, command: Command) => {
      const all = await withClient(client => client.all('/api/tokens/'));
      if (isJson(command)) return printJson(all);
      printTable(
        ['NAME', 'USER', 'EXPIRES', 'LAST USED', 'ID'],
        all.map(token => [
          token.name,
          (token.user as User).username,
          token.expires_on,
          token.last_used ?? 'never',
          token.id,
        ]),
      );
    });
  tokens
    .command('create <name>')
    .description('make a token, and print it this once; your password is asked for, or read from stdin')
    .option('--days <n>', 'how long it lasts', count)
    .action(async (name: string, { days }: { days?: number }, command: Command) => {
      const password = await askPassword('Your password: ');
      const body = { name, password, ...(days === undefined ? {} : { days }) };
      const made = await withClient(client => client.post('/api/tokens/', body));
      // a name alone would lose what is shown this once
      if (isJson(command) && outputForm() !== 'name') return printJson(made);
      note(`${name}: until ${made.expires_on}; it is shown this once`);
      print(String(made.token));
    });
  tokens
    .command('revoke <token>')
    .description('revoke a token, by its name or id')
    .action(async (nameOrId: string, _options, command: Command) => {
      await withClient(async client => {
        const found = (await client.all('/api/tokens/')).filter(
          ({ id, name }) => id === nameOrId.toLowerCase() || name === nameOrId,
        );
        if (found.length !== 1)
          throw new CliError(
            found.length === 0
              ? `There is no token "${nameOrId}".`
              : `Several tokens are called "${nameOrId}": give the id.`,
            found.length === 0 ? ExitCode.notFound : ExitCode.usage,
          );
        await client.post(`/api/tokens/${found[0]!.id}/remove/`);
      });
      if (isJson(command)) printJson({});
      else print(`${clean(nameOrId)}: revoked`);
    });
}

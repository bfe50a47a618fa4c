/** The command line of the controller. Administration works on the state directory, also while the server runs. */
import { mkdirSync } from 'node:fs';
import { userInfo } from 'node:os';
import { text } from 'node:stream/consumers';
import { parseArgs } from 'node:util';
import { runDaemonCommand, UsageError } from '@virtkeep/shared/daemon-cli';
import { reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { createLogger } from '@virtkeep/shared/log';
import { SERVICE_ROLES } from '@virtkeep/shared/permissions';
import { type ControllerConfig, chosenConfig, USUAL_CONFIG } from './config.ts';
import { databaseTarget } from './database-target.ts';
import { VERSION } from './http/openapi.ts';
import { openKeys } from './keys/open-keys.ts';
import { migrateDatabase } from './migrate-database.ts';
import { ensureCa, issueServiceCertificate } from './pki/index.ts';
import { serve } from './serve.ts';
import { UserService } from './services/accounts/users.ts';
import { certificateRow } from './services/nodes/certificate-register.ts';
import { makeEnrolment } from './services/nodes/enrolment.ts';
import { actAsStateOwner } from './state-owner.ts';
import { openDatabase } from './store/database.ts';
import type { Database } from './store/schema.ts';
import { loadNativePart } from './store/sqlite.ts';

const USAGE = `virtkeep-controller ${VERSION}

usage: virtkeep-controller [serve] [--config FILE]
       virtkeep-controller [--config FILE] user set-password NAME [--end-tokens]   (the new password on standard input)
       virtkeep-controller [--config FILE] node token [--name NAME] [--address HOST[:PORT]] [--replace NODE-ID]
       virtkeep-controller [--config FILE] cert issue --role reader|operator --name NAME [--out DIR] [--days N]
                                                                      (for a service that calls the agents)
       virtkeep-controller [--config FILE] migrate-database --to URL|FILE [--password-file FILE]
                                              (copies the database into another, empty one; no controller may run)
       virtkeep-controller --version | --help

Without --config the settings are those of ${USUAL_CONFIG}; where that is not there each has its default.
`;

const OPTIONS = {
  config: { type: 'string', short: 'c' },
  name: { type: 'string' },
  address: { type: 'string' },
  replace: { type: 'string' },
  role: { type: 'string' },
  out: { type: 'string' },
  days: { type: 'string' },
  to: { type: 'string' },
  'password-file': { type: 'string' },
  'end-tokens': { type: 'boolean' },
  version: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const;

/** Runs a command line; ends the process with 0, 1, 64 (usage) or 78 (settings). */
export function runCli(argv: string[]): Promise<never> {
  return runDaemonCommand('virtkeep-controller', () => runCommand(argv));
}

async function runCommand(argv: string[]): Promise<void> {
  const { values, positionals } = parse(argv);
  if (values.help) return void process.stdout.write(USAGE);
  if (values.version) return void process.stdout.write(`${VERSION}\n`);
  const config = chosenConfig(values.config);
  const [command = 'serve', action, subject, ...rest] = positionals;
  if (rest.length === 0) {
    if (command === 'serve' && action === undefined) {
      mkdirSync(config.state_dir, { recursive: true, mode: 0o700 });
      return runServer(config);
    }
    loadNativePart();
    const becomeRoot = actAsStateOwner(config.state_dir);
    if (command === 'user' && action === 'set-password' && subject) {
      return setPassword(config, subject, values['end-tokens'] === true);
    }
    if (command === 'node' && action === 'token' && subject === undefined) {
      return printToken(config, values);
    }
    if (command === 'migrate-database' && action === undefined) {
      const options = { to: values.to, passwordFile: values['password-file'] };
      return migrateDatabase(config, options, line => void process.stdout.write(`${line}\n`));
    }
    if (command === 'cert' && action === 'issue' && subject === undefined) {
      await withDatabase(config, async db => ensureCa(await openKeys(config, db)));
      // the certificate goes where the caller may write
      becomeRoot();
      return issueCert(config, values);
    }
  }
  throw new UsageError(`unknown command "${positionals.join(' ')}" (see --help)`);
}

function parse(argv: string[]) {
  try {
    return parseArgs({ args: argv, options: OPTIONS, allowPositionals: true });
  } catch (error) {
    throw new UsageError(`${reasonOf(error)} (see --help)`);
  }
}

function runServer(config: ControllerConfig): Promise<void> {
  return serve(config, createLogger('virtkeep-controller', config.log_level));
}

async function setPassword(config: ControllerConfig, username: string, endTokens: boolean): Promise<void> {
  const password = (await text(process.stdin)).replace(/\r?\n$/, '');
  await withDatabase(config, async db => {
    const users = new UserService(db);
    const user = await users.findByName(username);
    if (user === undefined) throw new VirtkeepError('user_not_found', { id: username });
    const changed = await users.change(user.number, { password, end_tokens: endTokens });
    const left = await users.tokens(user.id);
    process.stdout.write(`The password of ${username} was changed; earlier logins have ended.\n`);
    if (left > 0)
      process.stderr.write(`Integration tokens that go on: ${left}. --end-tokens ends them, too.\n`);
    if (!changed.enabled) process.stderr.write(`${username} is disabled, and stays so.\n`);
  });
}

async function printToken(
  config: ControllerConfig,
  { name = '', address = '', replace }: { name?: string; address?: string; replace?: string },
): Promise<void> {
  const ticket = await withDatabase(config, async db =>
    makeEnrolment(db, await ensureCa(await openKeys(config, db)), {
      verboseName: name,
      description: '',
      address,
      username: userInfo().username,
      replaces: replace ?? null,
      lifetimeMs: config.agents.enrolment_lifetime_s * 1000,
    }),
  );
  process.stdout.write(`${ticket.token}\n`);
  const whose = replace === undefined ? 'one new node' : `the node ${replace}`;
  process.stderr.write(`For ${whose}, until ${ticket.expires_on}.\n`);
}

async function issueCert(
  config: ControllerConfig,
  { role, name, out, days }: { role?: string; name?: string; out?: string; days?: string },
): Promise<void> {
  const serviceRole = SERVICE_ROLES.find(item => item === role);
  if (serviceRole === undefined) throw new UsageError(`--role must be one of: ${SERVICE_ROLES.join(', ')}`);
  if (name === undefined) throw new UsageError('--name is required');
  const maxDays = config.agents.service_certificate_max_days;
  const ca = await withDatabase(config, async db => ensureCa(await openKeys(config, db)));
  const files = await issueServiceCertificate(ca, {
    role: serviceRole,
    name,
    outDir: out ?? process.cwd(),
    days: Number(days ?? maxDays),
    maxDays,
    issued: pem =>
      withDatabase(config, async db => {
        const row = certificateRow(pem, { kind: 'service', subject: name, role: serviceRole });
        await db.insertInto('certificates').values(row).execute();
      }),
  });
  process.stdout.write(`${files.certificatePath}\n${files.keyPath}\n${files.caPath}\n`);
}

async function withDatabase<T>(config: ControllerConfig, work: (db: Database) => Promise<T>): Promise<T> {
  const db = await openDatabase(await databaseTarget(config));
  try {
    return await work(db);
  } finally {
    await db.destroy();
  }
}

/** `virtkeep notifications` against a controller's REST server, with a real receiver. */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { EXAMPLE_DATA } from '../../../controller/src/services/notifications/events.ts';
import { programFile } from '../../lab/paths.ts';
import { isSigned, MailServer, newCertificate, WebhookReceiver } from '../notifications/receivers.ts';
import { makeRestApp, type RestApp } from '../rest/app.ts';

const MAIN = programFile('virtkeep');
const PASSWORD = 'cli-mail-password';

let rest: RestApp;
let url: string;
let home: string;
let mail: MailServer;
let hook: WebhookReceiver;

beforeAll(async () => {
  rest = await makeRestApp();
  url = await rest.app.listen({ host: '127.0.0.1', port: 0 });
  home = mkdtempSync(join(tmpdir(), 'virtkeep-cli-'));
  const certificate = await newCertificate();
  mail = await new MailServer({ certificate, login: { user: 'virtkeep', password: PASSWORD } }).start();
  hook = await new WebhookReceiver(certificate).start();
  writeFileSync(join(home, 'ca.pem'), certificate.ca);
  writeFileSync(join(home, 'subject'), 'Alas: {{task.verbose_name}}\n');
});
afterAll(async () => {
  await rest.close();
  await mail.stop();
  await hook.stop();
  rmSync(home, { recursive: true });
});

/** With arguments as one text, in which there are no spaces. */
function run(args: string, stdin = ''): Promise<{ code: number; stdout: string; stderr: string }> {
  const env = {
    PATH: process.env.PATH,
    HOME: home,
    VIRTKEEP_URL: url,
    VIRTKEEP_TOKEN: rest.tokens.administrator,
  };
  return new Promise(resolve => {
    const child = execFile(
      process.execPath,
      [MAIN, 'notifications', ...args.split(' ')],
      { env, cwd: home },
      (error, stdout, stderr) => resolve({ code: error ? Number(error.code) : 0, stdout, stderr }),
    );
    child.stdin!.end(stdin);
  });
}

const deliver = () => rest.services.notifications.deliver(() => new Date());

test('a mail is set up with its password from stdin, tried, and told of a failed run', async () => {
  const server = `--host localhost --port ${mail.port} --ca ca.pem --username virtkeep`;
  const people = '--from virtkeep@example.org --to a@example.org b@example.org';
  const added = await run(
    `targets add-mail admins ${server} ${people} --template run_failed.subject=subject`,
    `${PASSWORD}\n`,
  );
  expect(added).toMatchObject({ code: 0, stdout: '' });
  expect(added.stderr).toContain('admins: added');
  expect(await run('targets test admins')).toMatchObject({ code: 0, stdout: 'delivered\n' });
  const { stdout } = await run('targets');
  expect(stdout).toContain('admins\tmail\tyes\trun_failed run_partial protection_late\t0\t0\t');
  await rest.services.notifications.raise(
    { event: 'run_failed', data: EXAMPLE_DATA.run_failed },
    { key: 'run 1', now: new Date() },
  );
  await deliver();
  expect(mail.mails.map(({ headers }) => headers.subject)).toEqual([
    ['Test of a notification'],
    ['Alas: nightly'],
  ]);
  expect(mail.mails[1]!.to).toEqual(['a@example.org', 'b@example.org']);
});

test('a webhook is set up with a secret that is made and printed once', async () => {
  const added = await run(`targets add-webhook chat ${hook.url} --ca ca.pem --event all --generate-secret`);
  expect(added.code).toBe(0);
  const secret = added.stdout.trim();
  expect(secret).toMatch(/^whsec_[A-Za-z0-9+/=]{44}$/);
  await run('targets test chat');
  expect(isSigned(hook.requests[0]!, Buffer.from(secret.slice(6), 'base64'))).toBe(true);
  const shown = await run('targets show chat');
  expect(shown.stdout).toContain('summary');
  expect(shown.stdout).not.toContain(secret);
});

test('what fails is seen, mended and tried again', async () => {
  writeFileSync(join(home, 'wrong'), 'wrong-password\n');
  expect(await run('targets set admins --password-file wrong')).toMatchObject({
    code: 0,
    stdout: 'admins: changed\n',
  });
  const failed = await run('targets test admins');
  expect(failed).toMatchObject({ code: 1, stdout: '' });
  expect(failed.stderr).toContain('not delivered: Invalid login');
  await rest.services.notifications.raise(
    { event: 'protection_late', data: EXAMPLE_DATA.protection_late },
    { key: 'late 1', now: new Date() },
  );
  await deliver();
  const [line] = (await run('list --status pending --target admins')).stdout.split('\n');
  expect(line).toMatch(/\tprotection_late\tadmins\tpending\t1\t.*Invalid login/);
  expect(line).not.toContain('wrong-password');
  const id = line!.split('\t').at(-1)!;
  expect((await run(`show ${id}`)).stdout).toMatch(/key +late 1\n.*"days": 3/s);
  await run('targets set admins --password', PASSWORD);
  expect(await run(`retry ${id}`)).toMatchObject({
    code: 0,
    stdout: 'protection_late for admins: tried again\n',
  });
  await deliver();
  expect(await run(`remove ${'0'.repeat(8)}-0000-4000-8000-000000000000`)).toMatchObject({ code: 4 });
  expect((await run('list --status sent --event protection_late --target admins')).stdout).toContain(id);
  expect(await run(`retry ${id}`)).toMatchObject({ code: 5 });
  expect(await run(`remove ${id}`)).toMatchObject({ code: 0 });
  expect(await run(`show ${id}`)).toMatchObject({ code: 4 });
});

test('a target is changed and removed; what it has not is refused', async () => {
  expect(await run('targets set chat --to a@example.org')).toMatchObject({
    code: 2,
    stderr: 'virtkeep: chat is a webhook and has no to.\n',
  });
  await run(
    'targets set chat --disable --event summary,run_failed --name talk --template summary.subject=subject',
  );
  const { stdout, stderr } = await run('targets set chat --disable --event summary,run_failed --name talk');
  expect([stdout, stderr]).toEqual(['talk: changed\n', '']);
  expect((await run('targets')).stdout).toContain('talk\twebhook\tno\tsummary run_failed\t');
  expect((await run('targets set admins --default-templates --host 127.0.0.1')).stderr).toContain(
    'must be given again',
  );
  expect((await run('targets set admins --default-templates')).code).toBe(0);
  expect((await run('targets show admins')).stdout).toMatch(/own templates +\n/);
  expect(await run('targets remove talk')).toMatchObject({ code: 0, stdout: 'talk: removed\n' });
  expect((await run('targets remove talk')).code).toBe(4);
});

import { resolve as resolvePath } from 'node:path';
import type { Command } from 'commander';
import { Client } from '../client.ts';
import { CliError, ExitCode } from '../exit-codes.ts';
import { note } from '../output.ts';
import { ask, askPassword, warnOfPlainHttp } from '../prompt.ts';
import { forgetSession, type Session, savedSession, saveSession } from '../session.ts';

interface LoginOptions {
  url?: string;
  username?: string;
  ca?: string;
}

/** `login` and `logout`. The password is asked for, or read from stdin in a pipe; never an argument. */
export function addLogin(program: Command): void {
  program
    .command('login')
    .description('log in to a controller and keep the session for the next commands')
    .option('--url <url>', 'address of the controller (or VIRTKEEP_URL)')
    .option('--username <name>', 'user name (or VIRTKEEP_USER)')
    .option('--ca <file>', 'CA certificate of the controller (or VIRTKEEP_CA)')
    .action(async (options: LoginOptions) => {
      const url = options.url ?? process.env.VIRTKEEP_URL;
      if (!url) throw new CliError('Which controller? Give --url https://HOST.', ExitCode.usage);
      const ca = options.ca ?? process.env.VIRTKEEP_CA;
      const username = options.username ?? process.env.VIRTKEEP_USER ?? (await ask('User name: '));
      warnOfPlainHttp(url);
      const password = process.env.VIRTKEEP_PASSWORD ?? (await askPassword());
      const session = { url, ...(ca ? { ca: resolvePath(ca) } : {}) };
      const client = new Client(session);
      try {
        const { token, expires_on } = await client.post<{ token: string; expires_on: string }>('/auth/', {
          username,
          password,
        });
        const path = await saveSession({ ...session, token });
        note(`Logged in to ${url} as ${username} until ${expires_on}; the session is in ${path}.`);
      } finally {
        client.close();
      }
    });
  program
    .command('logout')
    .description('end the session on the controller, and forget it')
    .option('--force', 'forget the session also when the controller cannot end it')
    .action(async ({ force }: { force?: boolean }) => {
      const saved = savedSession();
      if (force === true) forgetSession();
      if (saved?.token) await endSession(saved, saved.token, force === true);
      forgetSession();
    });
}

/** @throws CliError when the controller could not be told: the token is good until it expires, and needed to try again. */
async function endSession(session: Session, token: string, forgotten: boolean): Promise<void> {
  const id = tokenId(token);
  if (id === undefined) return;
  const client = new Client(session);
  try {
    await client.post(`/api/tokens/${encodeURIComponent(id)}/remove/`);
  } catch (error) {
    // ended before, or expired
    if (error instanceof CliError && error.exitCode === ExitCode.notAllowed) return;
    const here = forgotten
      ? 'The session is forgotten here, but its token stays valid until it expires'
      : 'The session is not ended, so it is kept: log out again, or forget it with --force';
    throw new CliError(
      `${here}: ${(error as Error).message}`,
      error instanceof CliError ? error.exitCode : ExitCode.failed,
    );
  } finally {
    client.close();
  }
}

/** The jti of a token. */
function tokenId(token: string): string | undefined {
  try {
    const claims = JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()) as {
      jti?: unknown;
    };
    return typeof claims.jti === 'string' ? claims.jti : undefined;
  } catch {
    return undefined;
  }
}

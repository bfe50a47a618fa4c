import type { Command } from 'commander';
import { type GlobalOptions, withClient } from '../context.ts';
import { print, printJson, printTable } from '../output.ts';

interface RevokeOptions {
  compromised?: boolean;
  unknown?: boolean;
}

/** `certificates`: list, revoke. */
export function addCertificates(program: Command): void {
  const certificates = program.command('certificates').description('certificates of nodes and services');
  certificates
    .command('list', { isDefault: true })
    .description('list them, newest first')
    .action(async (_options, command: Command) => {
      const all = await withClient(client => client.all('/api/certificates/'));
      if (command.optsWithGlobals<GlobalOptions>().json) return printJson(all);
      printTable(
        ['KIND', 'SUBJECT', 'ROLE', 'EXPIRES', 'REVOKED', 'REASON', 'SERIAL'],
        all.map(one => [one.kind, one.subject, one.role, one.expires_on, one.revoked_on, one.reason, one.id]),
      );
    });
  certificates
    .command('revoke <serial>')
    .description('let a certificate count no more, for good')
    .option('--compromised', 'others may have its key: what it signed counts as signed by nobody')
    .option('--unknown', 'take also a serial that the controller does not know')
    .action(async (serial: string, options: RevokeOptions, command: Command) => {
      const { compromised, unknown } = options;
      const body = { serial, ...(compromised ? { compromised } : {}), ...(unknown ? { unknown } : {}) };
      const answer = await withClient(client => client.post('/api/certificates/revoke/', body));
      if (command.optsWithGlobals<GlobalOptions>().json) printJson(answer);
      else print(`${serial}: revoked (${[answer.kind, answer.subject].filter(Boolean).join(' ')})`);
    });
}

/** Writes docs/errors.md from the one error table. usage: errors-doc.ts FILE */
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { ERRORS, type ErrorSpec } from '@virtkeep/shared/errors';

const HEAD = `# Errors

Made from the table in \`shared/src/errors.ts\` by \`make generate\`; change the table, not this page.

Every refusal and every failed task carries one of these. The first three digits of the code are the HTTP status (a
cancelled task's 499 is answered as 409). \`msg_key\` never changes its meaning; the text is for people. *Retry* means that
the same request may succeed later without being changed.

| code | msg_key | text | retry |
|---|---|---|---|
`;

/** The page as Markdown, ordered by code. */
export function errorsPage(table: Record<string, ErrorSpec> = ERRORS): string {
  const rows = Object.entries(table)
    .sort(([, a], [, b]) => a.code.localeCompare(b.code))
    .map(
      ([key, { code, text, retryable }]) => `| ${code} | \`${key}\` | ${text} | ${retryable ? 'yes' : ''} |`,
    );
  return `${HEAD}${rows.join('\n')}\n`;
}

const target = process.argv[2];
if (process.argv[1] === fileURLToPath(import.meta.url) && target) writeFileSync(target, errorsPage());

import { readFileSync } from 'node:fs';

const PACKAGE = new URL('../package.json', import.meta.url);

/** Version of the agent, out of its package.json. */
export const AGENT_VERSION: string = (JSON.parse(readFileSync(PACKAGE, 'utf8')) as { version: string })
  .version;

#!/usr/bin/env node
// The controller's entry: checks the Node that runs it before anything else is loaded.
import { requireSupportedNode } from '@virtkeep/shared/node-version';

requireSupportedNode();
const { runCli } = await import('./cli.ts');
await runCli(process.argv.slice(2));

#!/usr/bin/env node
// The agent's entry: checks the Node that runs it before anything else is loaded.
import { requireSupportedNode } from '@virtkeep/shared/node-version';
import { shedStripper, startLean } from './lean-process.ts';

requireSupportedNode();
startLean(process.argv.slice(2));
const { runCli } = await import('./cli.ts');
await shedStripper();
await runCli(process.argv.slice(2));

#!/usr/bin/env node
// The controller's entry: checks the Node that runs it before anything else is loaded.
import { keepCodeCache, useCodeCache } from '@virtkeep/shared/code-cache';
import { requireSupportedNode } from '@virtkeep/shared/node-version';
import { startSmall } from './small-heap.ts';

requireSupportedNode();
startSmall(process.argv.slice(2));
useCodeCache();
const { runCli } = await import('./cli.ts');
keepCodeCache();
await runCli(process.argv.slice(2));

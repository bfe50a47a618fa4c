import { FormGroup, Radio } from '@patternfly/react-core';
import { useQueries, useQuery } from '@tanstack/react-query';
import { answer, api, type Domain, list, type Schemas } from '../../api/client.ts';
import { useAllNodes, useAllPools } from '../../parts/all.ts';
import { Checks, Field } from '../../parts/fields.tsx';
import { type Choice, MOST_FOUND, Picker } from '../../parts/picker.tsx';
import { useWords } from '../../texts/index.tsx';
import type { FieldsProps } from './editor.tsx';

const ALL = 1000;

/** What it is about: all there are, or some by name, tag and node; and what is left out. */
export function WhatFields({ draft, set, fault }: FieldsProps) {
  const { texts } = useWords();
  const words = texts.schedules;
  const isScan = draft.action === 'scan';
  return (
    <>
      <FormGroup role="radiogroup" isStack label={words.selection} fieldId="schedule-selection">
        <Radio
          id="selection-all"
          name="selection"
          label={isScan ? words.allPools : words.all}
          isChecked={draft.all}
          onChange={() => set({ all: true })}
        />
        <Radio
          id="selection-some"
          name="selection"
          label={words.some}
          isChecked={!draft.all}
          onChange={() => set({ all: false })}
        />
      </FormGroup>
      {!draft.all && (
        <>
          {isScan ? (
            <PoolChecks draft={draft} set={set} fault={fault} />
          ) : (
            <DomainPicker
              id="schedule-entities"
              label={texts.vms.title}
              ids={draft.entities}
              error={fault('entities')}
              change={entities => set({ entities })}
            />
          )}
          <TagChecks
            id="schedule-tags"
            label={words.tags}
            chosen={draft.tags}
            error={fault('tags')}
            change={tags => set({ tags })}
          />
          <NodeChecks draft={draft} set={set} fault={fault} />
        </>
      )}
      {!isScan && (
        <DomainPicker
          id="schedule-without"
          label={words.without}
          isQuiet
          ids={draft.exclude_entities}
          error={fault('exclude_entities')}
          change={exclude_entities => set({ exclude_entities })}
        />
      )}
      <TagChecks
        id="schedule-without-tags"
        label={words.withoutTags}
        chosen={draft.exclude_tags}
        error={fault('exclude_tags')}
        change={exclude_tags => set({ exclude_tags })}
      />
    </>
  );
}

interface DomainPickerProps {
  id: string;
  label: string;
  ids: readonly string[];
  error: string | undefined;
  isQuiet?: boolean;
  change: (ids: string[]) => void;
}

/** One that is gone is named by its id. */
function DomainPicker({ ids, change, ...field }: DomainPickerProps) {
  const chosen = useQueries({
    queries: ids.map(id => ({
      queryKey: ['domains', 'one', id],
      queryFn: () => answer(api.GET('/api/domains/{id}/', { params: { path: { id } } })),
      retry: false,
    })),
    combine: results =>
      results.map(
        ({ data }, index): Choice => ({ id: ids[index] ?? '', name: data?.verbose_name ?? ids[index] ?? '' }),
      ),
  });
  return (
    <Picker
      {...field}
      kind={['domains']}
      chosen={chosen}
      change={choices => change(choices.map(({ id }) => id))}
      find={async name => {
        const query = { limit: MOST_FOUND, ...(name === '' ? {} : { name }) };
        const { count, results } = await list<Domain>(api.GET('/api/domains/', { params: { query } }));
        return {
          count,
          results: results.map(({ id, verbose_name, node }) => ({
            id,
            name: verbose_name,
            about: node.verbose_name,
          })),
        };
      }}
    />
  );
}

interface TagChecksProps {
  id: string;
  label: string;
  chosen: readonly string[];
  error: string | undefined;
  change: (ids: string[]) => void;
}

function TagChecks(props: TagChecksProps) {
  const { texts } = useWords();
  const tags = useQuery({
    queryKey: ['tags', 'all'],
    queryFn: () => list<Schemas['Tag']>(api.GET('/api/tags/', { params: { query: { limit: ALL } } })),
  });
  const options = (tags.data?.results ?? []).map(
    ({ id, verbose_name, entities_count }) => [id, `${verbose_name} (${entities_count})`] as const,
  );
  if (options.length === 0)
    return (
      <Field {...props} help={texts.schedules.noTags}>
        {null}
      </Field>
    );
  return <Checks {...props} options={options} />;
}

function NodeChecks({ draft, set, fault }: FieldsProps) {
  const { texts } = useWords();
  const nodes = useAllNodes();
  return (
    <Checks
      id="schedule-nodes"
      label={texts.schedules.ofNodes}
      options={(nodes.data?.results ?? []).map(({ id, verbose_name }) => [id, verbose_name] as const)}
      chosen={draft.nodes}
      error={fault('nodes')}
      change={chosen => set({ nodes: chosen })}
    />
  );
}

function PoolChecks({ draft, set, fault }: FieldsProps) {
  const { texts } = useWords();
  const pools = useAllPools();
  return (
    <Checks
      id="schedule-pools"
      label={texts.pools.title}
      options={(pools.data?.results ?? []).map(({ id, verbose_name }) => [id, verbose_name] as const)}
      chosen={draft.entities}
      error={fault('entities')}
      change={entities => set({ entities })}
    />
  );
}

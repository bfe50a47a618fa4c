import { Alert, Form, FormSelectOption } from '@patternfly/react-core';
import { useQuery } from '@tanstack/react-query';
import { api, list, type Pool } from '../../api/client.ts';
import { useAllNodes } from '../../parts/all.ts';
import { NumberField, SelectField, TextField } from '../../parts/fields.tsx';
import { PoolOptions } from '../../parts/pool-options.tsx';
import { Shown } from '../../parts/shown.tsx';
import { useWords } from '../../texts/index.tsx';
import type { StepProps } from './wizard.tsx';

/** Where it goes, and how it is called. */
export function TargetStep(props: StepProps) {
  const { choices, set, fault } = props;
  const { texts } = useWords();
  const words = texts.import;
  const nodes = useAllNodes();
  const isOfNode = choices.kind !== 'backup';
  const isReady = !isOfNode || choices.node !== '';
  const pools = useQuery({
    queryKey: ['pools', 'of', choices.node],
    queryFn: () => {
      const query = { limit: 1000, ...(choices.node === '' ? {} : { node: choices.node }) };
      return list<Pool>(api.GET('/api/data-pools/', { params: { query } }));
    },
    enabled: isReady,
  });
  const working = (nodes.data?.results ?? []).filter(({ status }) => status === 'ACTIVE');
  return (
    <Shown query={nodes}>
      {() => (
        <Form>
          {isOfNode && working.length === 0 && (
            <Alert isInline variant="warning" title={texts.restore.noNodes} />
          )}
          <SelectField
            id="import-node"
            label={texts.common.node}
            isRequired={isOfNode}
            options={[
              ['', isOfNode ? texts.none : words.anyNode],
              ...working.map(one => [one.id, one.verbose_name] as const),
            ]}
            value={choices.node}
            error={fault('node')}
            change={node => set({ node, datapool: '' })}
          />
          {choices.kind !== 'config' && (
            <SelectField
              id="import-pool"
              label={texts.common.pool}
              options={[]}
              value={choices.datapool}
              error={fault('datapool')}
              isDisabled={!isReady}
              change={datapool => set({ datapool })}
            >
              <FormSelectOption value="" label={words.itsPool} />
              <PoolOptions pools={pools.data?.results} />
            </SelectField>
          )}
          {isOfNode && (
            <TextField
              id="import-name"
              label={texts.restore.name}
              help={choices.kind === 'disk' ? undefined : words.nameHelp}
              isRequired={choices.kind === 'disk'}
              maxLength={255}
              value={choices.verbose_name}
              error={fault('verbose_name')}
              change={verbose_name => set({ verbose_name })}
            />
          )}
          {choices.kind === 'disk' && <NewMachine {...props} />}
        </Form>
      )}
    </Shown>
  );
}

function NewMachine({ choices, set, fault }: StepProps) {
  const { texts } = useWords();
  const words = texts.import;
  return (
    <>
      <NumberField
        id="import-memory"
        label={words.memory}
        min={1}
        value={choices.memory_count}
        error={fault('memory_count')}
        change={memory_count => set({ memory_count })}
      />
      <NumberField
        id="import-cpus"
        label={texts.vm.cpus}
        min={1}
        max={255}
        value={choices.cpu_count}
        error={fault('cpu_count')}
        change={cpu_count => set({ cpu_count })}
      />
      <SelectField
        id="import-os"
        label={texts.vm.system}
        options={[
          ['Linux', 'Linux'],
          ['Windows', 'Windows'],
          ['Other', words.other],
        ]}
        value={choices.os_type}
        error={fault('os_type')}
        change={os_type => set({ os_type })}
      />
      <SelectField
        id="import-firmware"
        label={words.firmware}
        options={[
          ['bios', 'BIOS'],
          ['uefi', 'UEFI'],
        ]}
        value={choices.firmware}
        error={fault('firmware')}
        change={firmware => set({ firmware })}
      />
      <TextField
        id="import-network"
        label={words.network}
        help={words.networkHelp}
        maxLength={255}
        value={choices.network}
        error={fault('network')}
        change={network => set({ network })}
      />
    </>
  );
}

import '@patternfly/react-core/dist/styles/base.css';
import './app.css';
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { BrowserRouter } from 'react-router';
import { ApiError } from './api/client.ts';
import { App } from './app.tsx';
import { TextsProvider } from './texts/index.tsx';

const MAX_RETRIES = 2;

const client = new QueryClient({
  defaultOptions: {
    queries: {
      // what changes is told by the stream
      staleTime: 30_000,
      refetchOnWindowFocus: false,
      // whether the controller can be reached it says itself: a browser takes a machine without a network for one that is cut off
      networkMode: 'always',
      retry: (failures, error) =>
        failures < MAX_RETRIES && (!(error instanceof ApiError) || error.status === 0 || error.status >= 500),
    },
  },
});

createRoot(document.getElementById('root') as HTMLElement).render(
  <StrictMode>
    <QueryClientProvider client={client}>
      <TextsProvider>
        <BrowserRouter basename="/ui">
          <App />
        </BrowserRouter>
      </TextsProvider>
    </QueryClientProvider>
  </StrictMode>,
);

make train

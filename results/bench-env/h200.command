ogspr bench env dmc:cartpole-swingup dmc:cheetah-run dmc:quadruped-walk dmc:humanoid-walk dmc:dog-run atari:Pong examples.chase:make --steps 200 --rounds 7
